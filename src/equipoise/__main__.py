"""`python -m equipoise`: the command."""

from equipoise.cli import main

if __name__ == "__main__":
    main(prog_name="equipoise")
