"""What tests of kept, and of its plugins, stand on."""
