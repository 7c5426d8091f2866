"""Where terms are placed, and hardmax layers that decide."""
