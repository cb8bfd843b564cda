"""Workspace files: safe paths, patches, applying changes, and the policy."""
