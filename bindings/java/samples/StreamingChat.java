import io.orlop.Engine;
import io.orlop.GenerateParams;
import io.orlop.Message;
import io.orlop.Output;
import io.orlop.Request;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** A chat in the terminal, one line a turn: StreamingChat MODEL. */
final class StreamingChat {
  private StreamingChat() {}

  public static void main(String[] arguments) throws Exception {
    List<Message> chat = new ArrayList<>();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    try (Engine engine = Engine.create(Path.of(arguments[0]))) {
      for (String line; (line = lines.readLine()) != null && !line.isEmpty(); ) {
        chat.add(Message.user(line));
        StringBuilder answer = new StringBuilder();
        try (Request request = engine.generate(GenerateParams.messages(chat).maxTokens(200).build())) {
          for (Output output : request) {
            System.out.print(output.text());
            System.out.flush();
            answer.append(output.text());
          }
        }
        System.out.println();
        chat.add(Message.assistant(answer.toString()));
      }
    }
  }
}
