/**
 * The Java binding of orlop, an embeddable LLM inference engine, on the foreign function and memory
 * API. Begin with {@link io.orlop.Engine}.
 */
package io.orlop;
