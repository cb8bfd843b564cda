"""Files: safe paths, patches, the apply journal, and the policy."""
