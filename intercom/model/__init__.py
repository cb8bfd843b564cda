"""What things are: values, enumerations and legal transitions. Pure."""
