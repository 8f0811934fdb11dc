import sys, orlop
with orlop.Engine(sys.argv[1]) as engine:
    messages = [{"role": "user", "content": sys.argv[2]}]
    for out in engine.async_generate(messages=messages, max_tokens=256, temperature=0):
        print(out.text, end="", flush=True)
