import { expect, test } from '@jest/globals';
import { readdirSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { FileTails } from '../../src/coordinator/output-tails.js';
import { taskId } from '../support/ids.js';
import { temporaryDirectory } from '../support/temporary-directory.js';

const TAILS = { stdout: 'out', stderr: '', updatedAtMs: 1 };

test('output that was handed over too long ago is deleted, and only that', async () => {
  const directory = join(temporaryDirectory(), 'output');
  const tails = new FileTails(directory);
  expect(await tails.prune(1_000_000)).toBe(0);
  await tails.put(taskId(1), TAILS);
  await tails.put(taskId(2), TAILS);
  utimesSync(join(directory, `${taskId(1)}.json`), 500, 500);
  expect(await tails.prune(1_000_000)).toBe(1);
  expect(readdirSync(directory)).toEqual([`${taskId(2)}.json`]);
  expect(await tails.get(taskId(1))).toBeNull();
  expect(await tails.get(taskId(2))).toEqual(TAILS);
});
