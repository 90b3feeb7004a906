"""All edges among some nodes, in local ids."""
