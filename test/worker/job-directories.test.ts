import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, test } from '@jest/globals';
import { silentLog, type Log } from '../../src/runtime/log.js';
import { jobDirectories } from '../../src/worker/job-directories.js';
import { jobId, token } from '../support/ids.js';
import { temporaryDirectory } from '../support/temporary-directory.js';

let runsDir: string;
let warnings: string[];
let directory: string;
const log: Log = { ...silentLog, warn: (_, message) => warnings.push(message) };

beforeEach(() => {
  runsDir = temporaryDirectory();
  warnings = [];
  directory = join(runsDir, jobId());
  mkdirSync(join(runsDir, '.wake'));
  mkdirSync(directory);
});

const marker = (status: number, signal: string): string =>
  [
    'v=1',
    `token=${token()}`,
    'identity=42',
    'stage=profile',
    `status=${String(status)}`,
    `signal=${signal}`,
    'started=1',
    'ended=2',
    'detail=',
    '',
  ].join('\n');

test('what a job has not written yet is not there, and no reason to warn', async () => {
  const directories = jobDirectories(runsDir, log);
  expect(await directories.endMarker(jobId())).toBeNull();
  expect(await directories.claim(jobId())).toEqual({ kind: 'none' });
  expect(await directories.tails(jobId(), 100)).toEqual({ stdout: '', stderr: '' });
  expect(await directories.takeWakes()).toEqual([]);
  expect(warnings).toEqual([]);
});

test('an end by a signal has no exit code, an end by itself has no signal', async () => {
  const directories = jobDirectories(runsDir, log);
  writeFileSync(join(directory, 'done'), marker(3, ''));
  expect(await directories.endMarker(jobId())).toEqual({ stage: 'profile', exitCode: 3, signal: null });
  writeFileSync(join(directory, 'done'), marker(137, '9'));
  expect(await directories.endMarker(jobId())).toEqual({ stage: 'profile', exitCode: null, signal: 9 });
});

test('the claim names the job at the backend; wakes are taken once', async () => {
  const directories = jobDirectories(runsDir, log);
  writeFileSync(join(directory, 'claim'), '42\n');
  writeFileSync(join(runsDir, '.wake', jobId()), '');
  expect(await directories.claim(jobId())).toEqual({ kind: 'held', id: '42' });
  expect(await directories.takeWakes()).toEqual([jobId()]);
  expect(await directories.takeWakes()).toEqual([]);
});

test('INV-8 nobody knows of a claim in a file system that is not there', async () => {
  const directories = jobDirectories(runsDir, log);
  rmSync(directory, { recursive: true });
  expect(await directories.claim(jobId())).toEqual({ kind: 'none' });
  rmSync(join(runsDir, '.wake'), { recursive: true });
  expect(await directories.claim(jobId())).toMatchObject({ kind: 'unknown' });
  expect(warnings).toHaveLength(1);
});

test('output that can not be read says so in its place, the other one is there', async () => {
  writeFileSync(join(directory, 'stdout'), '0123456789');
  symlinkSync('/etc/passwd', join(directory, 'stderr'));
  const { stdout, stderr } = await jobDirectories(runsDir, log).tails(jobId(), 4);
  expect([stdout, stderr]).toEqual(['6789', '[open-compute: this output can not be read]\n']);
});

test('a runs directory that is away is said once, not at every look, and again after it was back', async () => {
  const directories = jobDirectories(runsDir, log);
  rmSync(join(runsDir, '.wake'), { recursive: true });
  for (let i = 0; i < 3; i += 1) expect(await directories.takeWakes()).toEqual([]);
  expect(warnings).toEqual(['the runs directory does not answer']);
  mkdirSync(join(runsDir, '.wake'));
  await directories.takeWakes();
  rmSync(join(runsDir, '.wake'), { recursive: true });
  await directories.takeWakes();
  expect(warnings).toHaveLength(2);
});
