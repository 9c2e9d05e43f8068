"""How a broker reaches the controller, and what the active controller sends to the others."""
