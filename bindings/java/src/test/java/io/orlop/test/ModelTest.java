package io.orlop.test;

import static io.orlop.test.Check.isTrue;
import static io.orlop.test.Check.same;

import io.orlop.ChatEvent;
import io.orlop.ChatOutput;
import io.orlop.Engine;
import io.orlop.FinishReason;
import io.orlop.GenerateParams;
import io.orlop.Guide;
import io.orlop.Json;
import io.orlop.Message;
import io.orlop.Request;
import java.util.List;
import java.util.Map;

/** What needs a tokenizer: text, chat messages, guides. */
final class ModelTest {
  private ModelTest() {}

  private static final String TOOLS =
      "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}]";

  public static void textAndChat() {
    try (Engine engine = Check.model(Map.of("max_context", 512, "threads", 2))) {
      String text = "Größe: 5 m – \ud83d\ude42!";
      int[] ids = engine.tokenize(text, 0);
      same(engine.detokenize(ids, 0), text);
      same(engine.tokenize("", 0).length, 0);
      same(engine.tokenize("<|im_start|>", Engine.PARSE_SPECIAL).length, 1);
      isTrue(engine.tokenize("<|im_start|>", 0).length > 1, "plain text stays plain");
      same(engine.detokenizeBytes(ids, Engine.TOKEN_BYTES), text.getBytes(java.nio.charset.StandardCharsets.UTF_8));

      List<Message> chat = List.of(Message.system("Be brief."), Message.user("Name a colour.\n\"Now\""));
      String rendered = engine.chatRender(Message.json(chat));
      Check.contains(rendered, "Name a colour.\n\"Now\"");
      same(
          engine.chatTokenize(Message.json(chat)),
          engine.tokenize(rendered, Engine.PARSE_SPECIAL));
      try (Request r = engine.generate(GenerateParams.messages(chat).maxTokens(4).temperature(0).build())) {
        same(r.result().status().promptTokens(), (long) engine.chatTokenize(Message.json(chat)).length);
      }
      GenerateParams counting = GenerateParams.text("1, 2, 3, 4, 5,").temperature(0).maxTokens(20).build();
      try (Request r = engine.generate(counting.toBuilder().stop("8", ", 7").build())) {
        var sample = r.result().samples().getFirst();
        same(sample.text(), " 6");
        same(sample.stopIndex(), 1);
        same(sample.finishReason(), FinishReason.STOP);
      }
      try (Request r = engine.generate(counting)) {
        Check.contains(r.textAsync().join(), " 6, 7");
      }
      Guide choice = Guide.choice("green", "blue");
      try (Request r = engine.generate(GenerateParams.messages(chat).guide(choice).seed(1).build())) {
        isTrue(choice.check(r.text()).complete(), "one of the two");
      }
      Guide schema =
          Guide.jsonSchema(
              "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":0,"
                  + "\"maximum\":9}},\"required\":[\"n\"],\"additionalProperties\":false}");
      try (Request r = engine.generate(GenerateParams.messages(chat).guide(schema).maxTokens(60).seed(2).build())) {
        isTrue(Json.parse(r.text()) instanceof Map<?, ?> m && m.get("n") instanceof Long, "of the schema");
      }
      try (ChatOutput auto = engine.chatOutput("{" + TOOLS + "}")) {
        same(auto.push("hello", true), List.of(new ChatEvent.Content("hello")));
      }
    }
  }

  public static void chatOutput() {
    StringBuilder arguments = new StringBuilder();
    StringBuilder reasoning = new StringBuilder();
    String name = null;
    try (ChatOutput output = ChatOutput.of("{\"format\":\"hermes\",\"reasoning\":true," + TOOLS + "}")) {
      String text = "<think>hm</think><tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
      for (int i = 0; i < text.length(); i++)
        for (ChatEvent event : output.push(text.substring(i, i + 1), i + 1 == text.length()))
          switch (event) {
            case ChatEvent.Reasoning r -> reasoning.append(r.text());
            case ChatEvent.ToolCall c -> name = c.name();
            case ChatEvent.ToolArguments a -> arguments.append(a.text());
            case ChatEvent.Content c -> same(c.text().strip(), "");
          }
    }
    same(reasoning.toString(), "hm");
    same(name, "f");
    same(Json.parse(arguments.toString()), Map.of("a", 1L));
    ChatOutput closed = ChatOutput.of("{\"format\":\"none\",\"reasoning\":false}");
    closed.close();
    closed.close();
    Check.throwing(io.orlop.ClosedException.class, () -> closed.push("x", true));
  }
}
