package io.orlop;

/** Too many requests wait already ({@code ORLOP_E_QUEUE_FULL}). */
public final class QueueFullException extends OrlopException {
  private static final long serialVersionUID = 1L;

  QueueFullException(String message) {
    super(CODE, message);
  }

  /** The code of {@code ORLOP_E_QUEUE_FULL}. */
  public static final int CODE = -9;
}
