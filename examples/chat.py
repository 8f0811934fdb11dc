import sys, orlop
with orlop.Engine(sys.argv[1]) as engine:
    for out in engine.async_generate(messages=[{"role": "user", "content": sys.argv[2]}]):
        print(out.text, end="", flush=True)
    print()
