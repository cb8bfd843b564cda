"""What leaves the machine is masked."""
