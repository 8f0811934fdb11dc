package io.orlop.test;

import io.orlop.Engine;
import io.orlop.GenerateParams;
import io.orlop.Request;
import java.util.ArrayList;
import java.util.List;

/** Ends while requests run. */
final class ExitProgram {
  private ExitProgram() {}

  public static void main(String[] arguments) throws Exception {
    Engine engine = Check.tiny();
    List<Request> live = new ArrayList<>();
    for (int i = 0; i < 8; i++)
      live.add(engine.generate(GenerateParams.tokens(4, 5).maxTokens(500).ignoreEos(true).build()));
    live.getFirst().get();
    live.getLast().resultAsync();
    System.out.println("running");
    if (arguments[0].equals("exit")) System.exit(0);
  }
}
