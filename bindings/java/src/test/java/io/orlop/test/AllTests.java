package io.orlop.test;

/** The tests that run in one process. */
public final class AllTests {
  private AllTests() {}

  /**
   * Runs them.
   *
   * @param arguments none
   */
  public static void main(String[] arguments) throws Exception {
    Check.runAll(BehavioursTest.class, ApiTest.class, ModelTest.class, ThreadsTest.class, LibraryTest.class);
  }
}
