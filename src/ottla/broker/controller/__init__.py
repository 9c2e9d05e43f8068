"""How a broker reaches the controller, and how the active controller updates the others."""
