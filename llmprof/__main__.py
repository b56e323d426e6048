"""`python -m llmprof`."""

from llmprof.cli.app import main

if __name__ == "__main__":
    main()
