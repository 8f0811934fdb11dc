import io.orlop.Engine;
import io.orlop.GenerateParams;
import io.orlop.Message;
import io.orlop.Result;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** 200 requests at once, no thread for any of them: Batch200 MODEL [TOKENS]. */
final class Batch200 {
  private Batch200() {}

  public static void main(String[] arguments) {
    int tokens = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 32;
    long begin = System.nanoTime();
    try (Engine engine = Engine.create(Path.of(arguments[0]))) {
      List<CompletableFuture<Result>> answers = new ArrayList<>();
      for (int i = 0; i < 200; i++) {
        List<Message> chat = List.of(Message.user("Say something about the number " + i + "."));
        answers.add(engine.generateAsync(GenerateParams.messages(chat).maxTokens(tokens).seed(i).build()));
      }
      long total = 0;
      for (CompletableFuture<Result> answer : answers) total += answer.join().tokens().length;
      System.out.println(answers.getFirst().join().text().strip());
      System.out.printf(
          "200 requests, %d tokens, %.1f s%n", total, (System.nanoTime() - begin) / 1e9);
    }
  }
}
