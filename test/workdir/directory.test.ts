import { describe, expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { execFileSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { collectResult, readTail } from '../../src/workdir/collect.js';
import { jobFiles, prepareDirectory, removeDirectory, type JobFiles } from '../../src/workdir/directory.js';
import { readClaim, readDone, takeWakes } from '../../src/workdir/markers.js';
import { checkRunsDirectory } from '../../src/workdir/runs-directory.js';
import { freshDirectory, freshRunsDirectory, jobIdOf, nextToken, unprivileged } from '../support/job-directory.js';

const mode = (path: string): string => (lstatSync(path).mode & 0o777).toString(8);
const freshFiles = async (): Promise<JobFiles> => jobFiles(await freshRunsDirectory(), jobIdOf(nextToken()));

function reviewedScript(text = '#!/bin/sh\nexit 0\n', fileMode = 0o755): string {
  const path = join(freshDirectory(), 'script.sh');
  writeFileSync(path, text);
  chmodSync(path, fileMode);
  return path;
}

const profileOf = (scriptPath: string, sha256: string | null = null) => ({ name: 'train', scriptPath, sha256 });

async function prepared(): Promise<JobFiles> {
  const files = await freshFiles();
  const answer = await prepareDirectory(files, { parameters: {}, profile: profileOf(reviewedScript()) });
  expect(answer).toEqual({ kind: 'ok' });
  return files;
}

describe('the runs directory', () => {
  test('is made private, with the place for wake files, and may be checked again', async () => {
    const runsDir = join(freshDirectory(), 'runs');
    expect(await checkRunsDirectory(runsDir)).toEqual({ kind: 'ok' });
    expect(await checkRunsDirectory(runsDir)).toEqual({ kind: 'ok' });
    expect(mode(runsDir)).toBe('700');
    expect(mode(join(runsDir, '.wake'))).toBe('700');
    expect(readdirSync(runsDir)).toEqual(['.wake']);
  });

  test('is refused with one clear sentence when it is not fit', async () => {
    const home = freshDirectory();
    const real = join(home, 'real');
    mkdirSync(real);
    symlinkSync(real, join(home, 'link'));
    writeFileSync(join(home, 'file'), '');
    mkdirSync(join(home, 'open'));
    chmodSync(join(home, 'open'), 0o777);
    for (const [path, why] of [
      ['runs', 'is not an absolute path'],
      [`${home}/real/../x`, 'is not a plain path'],
      ['/', 'is not a plain path'],
      [`${home}/a\nb`, 'control character'],
      [`${home}/a%j`, '"%"'],
      [join(home, 'link'), 'is a symbolic link'],
      [join(home, 'file'), 'is not a directory'],
      [join(home, 'open'), 'is writable by everybody'],
      [join(home, 'no', 'parent'), 'its parent directory does not exist'],
      ['/proc/runs', 'cannot be'],
    ] as const) {
      const check = await checkRunsDirectory(path);
      expect([path, check.kind]).toEqual([path, 'unusable']);
      expect(check).toMatchObject({ problem: expect.stringContaining(why) });
      expect(check).toMatchObject({ problem: expect.stringContaining(JSON.stringify(path)) });
    }
    expect(readdirSync(home).sort()).toEqual(['file', 'link', 'open', 'real']);
    expect(readdirSync(real)).toEqual([]);
  });
});

describe('a job directory', () => {
  test('holds the parameters as data and the copy of the script, each with its mode', async () => {
    const files = await freshFiles();
    const text = '#!/bin/sh\necho "ü"\n';
    const parameters = { message: '$(id)\n', list: [1, null] };
    const pinned = createHash('sha256').update(text).digest('hex').toUpperCase();
    const profile = profileOf(reviewedScript(text), pinned);
    expect(await prepareDirectory(files, { parameters, profile })).toEqual({ kind: 'ok' });
    expect(JSON.parse(readFileSync(files.input, 'utf8'))).toEqual(parameters);
    expect(readFileSync(files.profile, 'utf8')).toBe(text);
    expect([files.directory, files.input, files.profile].map(mode)).toEqual(['700', '600', '500']);
    expect(readdirSync(files.directory).sort()).toEqual(['input.json', 'profile']);
  });

  test('that a crash left half made is completed, and one that is complete stays as it is', async () => {
    const files = await freshFiles();
    mkdirSync(files.directory, { mode: 0o755 });
    writeFileSync(files.input, '{"mess');
    writeFileSync(`${files.profile}.new`, '#!/bin');
    writeFileSync(files.claim, 'kept\n');
    const profile = profileOf(reviewedScript());
    for (let time = 0; time < 2; time += 1) {
      expect(await prepareDirectory(files, { parameters: { a: 1 }, profile })).toEqual({ kind: 'ok' });
      expect(readFileSync(files.input, 'utf8')).toBe('{"a":1}\n');
      expect(mode(files.directory)).toBe('700');
      expect(readdirSync(files.directory).sort()).toEqual(['claim', 'input.json', 'profile']);
    }
    expect(readFileSync(files.claim, 'utf8')).toBe('kept\n');
  });

  test('is not made for a script that is missing, unfit or not the reviewed one', async () => {
    const home = freshDirectory();
    execFileSync('/usr/bin/mkfifo', [join(home, 'fifo')]);
    for (const [scriptPath, sha256, why] of [
      [join(home, 'missing.sh'), null, 'is missing'],
      [home, null, 'is not a regular file'],
      [join(home, 'fifo'), null, 'is not a regular file'],
      [reviewedScript('', 0o644), null, 'is empty'],
      [reviewedScript('#!/bin/sh\n', 0o757), null, 'is writable by everybody'],
      [reviewedScript(), 'a'.repeat(64), 'is not the reviewed one'],
      [`${home}/nul\0.sh`, null, 'cannot be opened'],
    ] as const) {
      const files = await freshFiles();
      const answer = await prepareDirectory(files, { parameters: {}, profile: profileOf(scriptPath, sha256) });
      expect(answer).toMatchObject({ kind: 'invalidSpec', detail: expect.stringContaining(why) });
      expect(answer).toMatchObject({ detail: expect.stringContaining(`profile train: script ${scriptPath}`) });
      expect(existsSync(files.directory)).toBe(false);
    }
  });

  test('is not made through a symbolic link, and no link inside it is followed', async () => {
    const elsewhere = freshDirectory();
    const profile = profileOf(reviewedScript());
    const linked = await freshFiles();
    symlinkSync(elsewhere, linked.directory);
    expect(await prepareDirectory(linked, { parameters: {}, profile })).toMatchObject({ kind: 'io' });
    const victim = join(elsewhere, 'victim');
    writeFileSync(victim, 'untouched');
    const files = await freshFiles();
    mkdirSync(files.directory);
    for (const path of [files.input, `${files.input}.new`, files.profile, `${files.profile}.new`])
      symlinkSync(victim, path);
    expect(await prepareDirectory(files, { parameters: {}, profile })).toEqual({ kind: 'ok' });
    expect(readFileSync(victim, 'utf8')).toBe('untouched');
    expect(lstatSync(files.input).isFile() && lstatSync(files.profile).isFile()).toBe(true);
    expect(readdirSync(elsewhere)).toEqual(['victim']);
  });

  test('answers "try again" when the disk does not take it', async () => {
    const files = await freshFiles();
    writeFileSync(files.directory, 'in the way');
    const answer = await prepareDirectory(files, { parameters: {}, profile: profileOf(reviewedScript()) });
    expect(answer).toMatchObject({ kind: 'io', detail: expect.stringContaining(files.directory) });
  });

  test('goes with all that is in it, read-only directories too, and no link is followed out of it', async () => {
    const files = await prepared();
    const elsewhere = freshDirectory();
    writeFileSync(join(elsewhere, 'kept'), '');
    mkdirSync(join(files.directory, 'cache', 'deep'), { recursive: true });
    writeFileSync(join(files.directory, 'cache', 'deep', 'file'), '');
    symlinkSync(elsewhere, join(files.directory, 'cache', 'link'));
    chmodSync(join(files.directory, 'cache', 'deep'), 0o500);
    chmodSync(join(files.directory, 'cache'), 0o500);
    expect(await removeDirectory(files)).toEqual({ kind: 'ok' });
    expect(existsSync(files.directory)).toBe(false);
    expect(await removeDirectory(files)).toEqual({ kind: 'ok' });
    expect(readdirSync(elsewhere)).toEqual(['kept']);
  });
});

describe('without the powers of root', () => {
  test('a runs directory that cannot be written to is refused, and says what to do', async () => {
    await unprivileged(async () => {
      const runsDir = join(freshDirectory(), 'runs');
      mkdirSync(runsDir, { mode: 0o500 });
      const check = await checkRunsDirectory(runsDir);
      expect(check).toMatchObject({ kind: 'unusable', problem: expect.stringContaining('is not writable (EACCES)') });
    });
  });

  test('a script and a result that cannot be read say so', async () => {
    await unprivileged(async () => {
      const files = await freshFiles();
      const answer = await prepareDirectory(files, { parameters: {}, profile: profileOf(reviewedScript('x', 0o000)) });
      expect(answer).toMatchObject({ kind: 'invalidSpec', detail: expect.stringContaining('is not readable') });
      const other = await prepared();
      writeFileSync(other.result, '1', { mode: 0o000 });
      expect(await collectResult(other, 100)).toMatchObject({
        kind: 'invalid',
        detail: expect.stringContaining('not readable'),
      });
    });
  });

  test('a directory that may not be read, as with a ticket that ran out, says nothing about what is in it', async () => {
    await unprivileged(async () => {
      const files = await prepared();
      writeFileSync(files.result, '1');
      chmodSync(files.directory, 0o000);
      expect(await collectResult(files, 100)).toMatchObject({ kind: 'io', detail: expect.stringContaining('EACCES') });
      chmodSync(files.directory, 0o700);
      expect(await collectResult(files, 100)).toMatchObject({ kind: 'ok', value: 1 });
    });
  });

  test('a directory that a job made read-only goes with the rest', async () => {
    await unprivileged(async () => {
      const files = await prepared();
      mkdirSync(join(files.directory, 'cache', 'deep'), { recursive: true });
      writeFileSync(join(files.directory, 'cache', 'deep', 'file'), '');
      chmodSync(join(files.directory, 'cache', 'deep'), 0o500);
      chmodSync(join(files.directory, 'cache'), 0o000);
      expect(await removeDirectory(files)).toEqual({ kind: 'ok' });
      expect(existsSync(files.directory)).toBe(false);
    });
  });
});

describe('a result', () => {
  test('is any JSON value within its limit, with its size and its hash', async () => {
    const files = await prepared();
    for (const value of [null, 0, 'ü', [1], { a: { b: [] } }]) {
      const text = JSON.stringify(value);
      writeFileSync(files.result, text);
      const sha256 = createHash('sha256').update(text).digest('hex');
      const bytes = Buffer.byteLength(text);
      expect(await collectResult(files, bytes)).toEqual({ kind: 'ok', value, bytes, sha256 });
      expect(await collectResult(files, bytes - 1)).toMatchObject({
        kind: 'invalid',
        detail: `${files.result} is larger than ${String(bytes - 1)} bytes`,
      });
    }
  });

  test('does not count when it is no JSON, no text, too deep, or not a file of its own', async () => {
    const files = await prepared();
    const deep = '['.repeat(100_000) + ']'.repeat(100_000);
    for (const [content, why] of [
      ['', 'is empty'],
      [' \n', 'is empty'],
      ['{"a":', 'is not JSON'],
      ['{} {}', 'is not JSON'],
      [Buffer.from([0x22, 0xff, 0x22]), 'is not UTF-8'],
      [deep, 'levels deep'],
      [`{"a":"${'['.repeat(1000)}"} x`, 'is not JSON'],
    ] as const) {
      writeFileSync(files.result, content);
      const answer = await collectResult(files, 1_000_000);
      expect(answer).toMatchObject({ kind: 'invalid', detail: expect.stringContaining(why) });
      expect(answer).toMatchObject({ detail: expect.stringContaining(files.result) });
    }
    const other = await prepared();
    symlinkSync('/etc/hostname', other.result);
    expect(await collectResult(other, 1000)).toMatchObject({
      kind: 'invalid',
      detail: expect.stringContaining('symbolic link'),
    });
    const fifo = await prepared();
    execFileSync('/usr/bin/mkfifo', [fifo.result]);
    expect(await collectResult(fifo, 1000)).toMatchObject({
      kind: 'invalid',
      detail: expect.stringContaining('regular file'),
    });
    const folder = await prepared();
    mkdirSync(folder.result);
    expect(await collectResult(folder, 1000)).toMatchObject({
      kind: 'invalid',
      detail: expect.stringContaining('regular file'),
    });
  });

  test('that is not there is missing, also with its directory; when nothing can be seen of the runs directory, nothing is known', async () => {
    const files = await prepared();
    expect(await collectResult(files, 1000)).toMatchObject({ kind: 'missing' });
    await removeDirectory(files);
    const gone = { kind: 'missing', detail: expect.stringContaining(files.directory) };
    expect(await collectResult(files, 1000)).toMatchObject(gone);
    // As when the file system is not mounted: the mount point is there, and empty.
    rmSync(join(dirname(files.directory), '.wake'), { recursive: true });
    const unknown = { kind: 'io', detail: expect.stringContaining(files.directory) };
    expect(await collectResult(files, 1000)).toMatchObject(unknown);
  });
});

describe('what a job leaves beside its result', () => {
  test('an end marker that is torn, foreign or not a file is invalid, a missing one is missing', async () => {
    const files = await prepared();
    expect(await readDone(files)).toEqual({ kind: 'missing' });
    expect(await readClaim(files)).toEqual({ kind: 'missing' });
    for (const text of ['', 'v=1\n', 'v=2\ntoken=x\n', '\0\0', 'stage=profile\nstatus=-1']) {
      writeFileSync(files.done, text);
      expect(await readDone(files)).toMatchObject({ kind: 'invalid', detail: expect.stringContaining(files.done) });
    }
    writeFileSync(files.claim, '');
    expect(await readClaim(files)).toMatchObject({ kind: 'invalid' });
    const linked = await prepared();
    symlinkSync('/etc/passwd', linked.done);
    expect(await readDone(linked)).toMatchObject({ kind: 'invalid', detail: expect.stringContaining('symbolic link') });
  });

  test('the tail of its output starts at a character, and says that it was cut', async () => {
    const files = await prepared();
    expect(await readTail(files.stdout, 10)).toEqual({ kind: 'missing' });
    writeFileSync(files.stdout, 'aé€😀');
    const sizeBytes = statSync(files.stdout).size;
    for (const [limitBytes, text] of [
      [100, 'aé€😀'],
      [10, 'aé€😀'],
      [9, 'é€😀'],
      [8, '€😀'],
      [6, '😀'],
      [4, '😀'],
      [3, ''],
      [0, ''],
    ] as const) {
      expect(await readTail(files.stdout, limitBytes)).toEqual({
        kind: 'ok',
        text,
        sizeBytes,
        truncated: limitBytes < sizeBytes,
      });
    }
    writeFileSync(files.stdout, Buffer.from([0x61, 0xff, 0x1b, 0x62]));
    expect(await readTail(files.stdout, 100)).toMatchObject({ text: 'a\ufffd\u001bb' });
  });

  test('wake files are taken once, those of other workers are left, and strange names are left alone', async () => {
    const runsDir = await freshRunsDirectory();
    const [mine, theirs] = [jobIdOf(nextToken()), jobIdOf(nextToken())];
    for (const name of [mine, theirs, 'job_x', '.hidden']) writeFileSync(join(runsDir, '.wake', name), '');
    expect(await takeWakes(runsDir, (jobId) => jobId === mine)).toEqual({ kind: 'ok', jobIds: [mine] });
    expect(await takeWakes(runsDir, (jobId) => jobId === mine)).toEqual({ kind: 'ok', jobIds: [] });
    expect(await takeWakes(runsDir)).toEqual({ kind: 'ok', jobIds: [theirs] });
    expect(readdirSync(join(runsDir, '.wake')).sort()).toEqual(['.hidden', 'job_x']);
    expect(await takeWakes(join(runsDir, 'nowhere'))).toMatchObject({ kind: 'io' });
  });
});
