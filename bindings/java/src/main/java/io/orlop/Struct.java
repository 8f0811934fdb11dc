package io.orlop;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The fields of a C struct and their offsets, by the rules of the C ABI. A description is a list of
 * {@code type name}: i (32 bits), l (64 bits), d (double), f (float), p (pointer), cN (N bytes).
 */
final class Struct {
  final String description;
  final Map<String, Long> offsets = new LinkedHashMap<>();
  final long size;

  private Struct(String description) {
    this.description = description;
    long at = 0;
    for (String field : description.trim().split("\\s*,\\s*")) {
      String[] part = field.split("\\s+");
      boolean bytes = part[0].charAt(0) == 'c';
      long size =
          bytes
              ? Long.parseLong(part[0].substring(1))
              : part[0].equals("i") || part[0].equals("f") ? 4 : 8;
      long alignment = bytes ? 1 : size;
      at = (at + alignment - 1) / alignment * alignment;
      offsets.put(part[1], at);
      at += size;
    }
    size = (at + 7) / 8 * 8;
  }

  long at(String field) {
    return offsets.get(field);
  }

  static final Struct ERROR = new Struct("i struct_size, i code, c504 message");

  static final Struct PROGRESS =
      new Struct("i struct_size, i done, l bytes_done, l bytes_total");

  static final Struct STATS =
      new Struct(
          "i struct_size, i requests_running, i requests_waiting, i reserved, l pages_total,"
              + " l pages_used, l steps, l prompt_tokens, l generated_tokens, l requests_finished,"
              + " l preemptions, l step_ns_total, l model_ns_total, l pages_cached, l pages_free,"
              + " l prefix_lookup_tokens, l prefix_hit_tokens, l host_pages_total,"
              + " l host_pages_used, l host_pages_out, l host_pages_in, l requests_paused,"
              + " d prompt_tokens_per_s, d generated_tokens_per_s, l plan_ns_total,"
              + " l forward_ns_total, l sample_ns_total, l commit_ns_total, l last_step_ns,"
              + " l pages_shared");

  static final Struct PARAMS =
      new Struct(
          "i struct_size, i flags, p text, l text_len, p tokens, l n_tokens, p messages,"
              + " l messages_len, i max_tokens, i min_tokens, d temperature, d top_p, d min_p,"
              + " i top_k, i n, d repetition_penalty, d presence_penalty, d frequency_penalty,"
              + " l seed, p logit_bias, l n_logit_bias, p stop, l n_stop, p stop_tokens,"
              + " l n_stop_tokens, i logprobs, i prompt_logprobs, p queue, l tag, p cache_salt,"
              + " l cache_salt_len, l deadline_us, i priority, i reserved, i guide, i embedding,"
              + " p guide_source, l guide_source_len");

  static final Struct OUTPUT =
      new Struct(
          "i struct_size, i finish_reason, i index, i error_code, p text, l text_len, p tokens,"
              + " l n_tokens, p logprobs, p top_logprobs, l n_top, p prompt_logprobs,"
              + " p prompt_top_logprobs, l n_prompt, l n_prompt_top, p message, l message_len,"
              + " i stop_token, i stop_index, p embedding, l n_embedding");

  static final Struct REQUEST_INFO =
      new Struct(
          "i struct_size, i state, i finish_reason, i error_code, l prompt_tokens,"
              + " l cached_tokens, l generated_tokens, l seed, l queued_ns, l scheduled_ns,"
              + " l first_token_ns, l last_token_ns, i samples, i reserved");

  static final Struct STATE_PARAMS =
      new Struct(
          "i struct_size, i flags, p text, l text_len, p tokens, l n_tokens, p messages,"
              + " l messages_len, p cache_salt, l cache_salt_len, p key, l key_len, p path,"
              + " l path_len, l deadline_us");

  static final Struct STATE_INFO =
      new Struct("i struct_size, i shared, l n_tokens, l pages, l pages_added");
}
