import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from '@jest/globals';

const made: string[] = [];

afterAll(() => {
  for (const path of made.splice(0)) rmSync(path, { recursive: true, force: true });
});

/** A new empty directory (mode 0700) that goes when the test file is done. */
export function temporaryDirectory(): string {
  const path = mkdtempSync(join(tmpdir(), 'open-compute-'));
  made.push(path);
  return path;
}
