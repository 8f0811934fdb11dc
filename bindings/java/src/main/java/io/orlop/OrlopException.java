package io.orlop;

/** An error that the library reported; there is one subclass for each {@code ORLOP_E_} code. */
public class OrlopException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** The code of the C header. */
  private final int status;

  OrlopException(int status, String message) {
    super(message);
    this.status = status;
  }

  /**
   * The status code of the C header.
   *
   * @return a negative {@code ORLOP_E_} code
   */
  public final int status() {
    return status;
  }

  /** The same for another thread: an exception that several throw has one stack trace. */
  final OrlopException again() {
    OrlopException e = of(status, getMessage());
    e.initCause(this);
    return e;
  }

  /** The exception of a code; a code of a newer library becomes a plain OrlopException. */
  static OrlopException of(int code, String message) {
    return switch (code) {
      case InvalidArgumentException.CODE -> new InvalidArgumentException(message);
      case NotFoundException.CODE -> new NotFoundException(message);
      case IoException.CODE -> new IoException(message);
      case BadFormatException.CODE -> new BadFormatException(message);
      case UnsupportedException.CODE -> new UnsupportedException(message);
      case OutOfMemoryException.CODE -> new OutOfMemoryException(message);
      case ContextOverflowException.CODE -> new ContextOverflowException(message);
      case BusyException.CODE -> new BusyException(message);
      case QueueFullException.CODE -> new QueueFullException(message);
      case CancelledException.CODE -> new CancelledException(message);
      case ShutdownException.CODE -> new ShutdownException(message);
      case InternalException.CODE -> new InternalException(message);
      case DeadlineException.CODE -> new DeadlineException(message);
      default -> new OrlopException(code, message);
    };
  }
}
