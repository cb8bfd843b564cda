"""Data model: values, enumerations and legal transitions. Pure."""
