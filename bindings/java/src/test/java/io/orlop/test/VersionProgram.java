package io.orlop.test;

/** Prints the version of the library that was found. */
final class VersionProgram {
  private VersionProgram() {}

  public static void main(String[] arguments) {
    System.out.println(io.orlop.Orlop.version());
  }
}
