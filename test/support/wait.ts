/**
 * Waits until `look` answers something else than null, and gives that. Throws after `limitMs`: a test that waits for a
 * condition is as fast as the condition, one that sleeps is slow or flaky.
 */
export async function eventually<T>(look: () => T | null | Promise<T | null>, limitMs = 10_000): Promise<T> {
  const endMs = Date.now() + limitMs;
  for (;;) {
    const found = await look();
    if (found !== null) return found;
    if (Date.now() > endMs) throw new Error(`not seen within ${String(limitMs)} ms: ${look.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
