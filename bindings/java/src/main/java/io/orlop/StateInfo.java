package io.orlop;

/**
 * What a loaded state holds.
 *
 * @param shared whether it serves every cache salt
 * @param tokens prefix tokens: whole pages
 * @param pages KV pages that it holds
 * @param pagesAdded of them, those that the engine did not have
 */
public record StateInfo(boolean shared, long tokens, long pages, long pagesAdded) {}
