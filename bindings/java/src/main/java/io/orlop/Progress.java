package io.orlop;

/**
 * How far a load has come.
 *
 * @param done whether loading ended, well or not
 * @param bytesDone weight bytes read and packed so far
 * @param bytesTotal all of them; 0 until known
 */
public record Progress(boolean done, long bytesDone, long bytesTotal) {}
