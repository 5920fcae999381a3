import { describe, expect, jest, test } from '@jest/globals';
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { openStateDirectory, type StateDirectoryOptions } from '../../src/events/state-directory.js';
import { afterMounting, logChild } from '../support/log-child.js';
import { all, create, stream, wholeLife } from '../support/logs.js';
import { temporaryDirectory } from '../support/temporary-directory.js';
import { eventually } from '../support/wait.js';

// Each test starts processes.
jest.setTimeout(60_000);

const open = (path: string, over: Partial<StateDirectoryOptions> = {}) =>
  openStateDirectory(path, { mode: 'write', writer: 'this test', nowMs: () => 1000, ...over });

const refusal = (fault: string, message: string | RegExp) =>
  expect.objectContaining({ name: 'StoreError', fault, message: expect.stringMatching(message) });

const mode = (path: string): number => statSync(path).mode & 0o777;

describe('one writer', () => {
  test('a second process is refused at once and told who writes; it may read what is durable', async () => {
    const directory = temporaryDirectory();
    const child = logChild(
      // What the lock hangs on must not be garbage as long as the process lives.
      `const { store } = await open(args[0], { writer: 'gateway 1' });
       const turn = () => new Promise(setImmediate);
       for (let n = 0; n < 3; n += 1) { await turn(); gc(); }
       for await (const line of process.stdin) {
         for (const text of String(line).trim().split('\\n')) say((await store.append(JSON.parse(text))).length);
       }`,
      [directory],
    );
    child.process.stdin?.write(`${JSON.stringify(wholeLife(1))}\n`);
    expect(await child.next()).toBe(9);

    const second = open(directory);
    await expect(second).rejects.toEqual(refusal('locked', directory));
    await expect(second).rejects.toThrow(`process ${child.process.pid ?? 0} on ${hostname()} (gateway 1, since 1970`);

    const reader = await open(directory, { mode: 'read' });
    expect(await all(reader.store)).toHaveLength(9);
    child.process.stdin?.write(`${JSON.stringify(create(2))}\n`);
    expect(await child.next()).toBe(1);
    expect(await reader.store.readStream(stream(2))).toHaveLength(1);
    await expect(reader.store.append(create(3))).rejects.toEqual(refusal('readOnly', directory));

    // The kernel lets go of the lock of a process that was killed; nothing has to be cleaned up by hand.
    child.process.kill('SIGKILL');
    await child.ended;
    const next = await open(directory);
    expect(await next.store.lastPosition()).toBe(10);
    expect(await next.store.checkIntegrity()).toEqual([]);
    await next.store.append(create(3));
    expect(await reader.store.lastPosition()).toBe(11);
    await reader.close();
    await next.close();
  });

  test('a second writer in one process is refused as well, until the first one closes', async () => {
    const directory = temporaryDirectory();
    const first = await open(directory);
    await expect(open(directory)).rejects.toEqual(refusal('locked', /this test/));
    await first.store.append(create(1));
    await first.close();
    await first.close();
    const second = await open(directory);
    expect(await second.store.lastPosition()).toBe(1);
    await second.close();
    expect(existsSync(join(directory, 'writer.json'))).toBe(false);
  });

  test('of many processes that start in one moment, one becomes the writer', async () => {
    const directory = temporaryDirectory();
    const children = Array.from({ length: 4 }, () =>
      logChild(
        `await open(args[0]).then(() => say('writer'), (error) => say(error.fault));
         process.stdin.resume();`,
        [directory],
      ),
    );
    const said = await Promise.all(children.map((child) => child.next()));
    for (const child of children) child.process.stdin?.end();
    await Promise.all(children.map(({ ended }) => ended));
    expect(said.toSorted()).toEqual(['locked', 'locked', 'locked', 'writer']);
  });

  test('a log that can not be opened lets go of the lock', async () => {
    const directory = temporaryDirectory();
    writeFileSync(join(directory, 'events.db'), 'x'.repeat(5000));
    for (let n = 0; n < 2; n += 1) await expect(open(directory)).rejects.toEqual(refusal('corrupt', /events\.db/));
    rmSync(join(directory, 'events.db'));
    await (await open(directory)).close();
  });
});

describe('the place', () => {
  test.each([
    ['NFS', 0x6969],
    ['SMB', 0x517b],
    ['CIFS', 0xff534d42],
    ['CIFS', -11317950],
    ['SMB2', 0xfe534d42],
    ['Lustre', 0x0bd00bd0],
    ['GPFS', 0x47504653],
    ['BeeGFS', 0x19830326],
    ['CephFS', 0x00c36400],
    ['AFS', 0x5346414f],
    ['9p', 0x01021997],
    ['FUSE', 0x65735546],
  ])('on %s (type %i) is refused before anything is made', async (name, type) => {
    const directory = join(temporaryDirectory(), 'a', 'b');
    const asked: string[] = [];
    const statfs = async (path: string) => {
      asked.push(path);
      return { type };
    };
    for (const wanted of ['write', 'read'] as const)
      await expect(open(directory, { mode: wanted, create: true, statfs })).rejects.toEqual(
        refusal('networkFileSystem', `${directory}.*${name}.*local disk`),
      );
    expect(existsSync(join(directory, '..'))).toBe(false);
    expect(asked).toEqual([join(directory, '../..'), join(directory, '../..')]);
  });

  test.each([
    ['ext4', 0xef53],
    ['XFS', 0x58465342],
    ['Btrfs', 0x9123683e],
    ['ZFS', 0x2fc12fc1],
    ['tmpfs', 0x01021994],
    ['overlayfs', 0x794c7630],
  ])('on %s (type %i) is fine', async (_name, type) => {
    await (await open(temporaryDirectory(), { statfs: async () => ({ type }) })).close();
  });

  test('that is missing is made on request only, private', async () => {
    const directory = join(temporaryDirectory(), 'a', 'b');
    await expect(open(directory)).rejects.toEqual(refusal('missing', directory));
    await expect(open(directory, { mode: 'read' })).rejects.toEqual(refusal('missing', directory));
    await expect(open(directory, { mode: 'read', create: true })).rejects.toEqual(refusal('missing', directory));
    expect(existsSync(directory)).toBe(false);
    const state = await open(directory, { create: true });
    await state.store.append(create(1));
    expect(mode(directory)).toBe(0o700);
    for (const name of readdirSync(directory)) expect([name, mode(join(directory, name))]).toEqual([name, 0o600]);
    expect(readdirSync(directory).toSorted()).toEqual([
      'events.db',
      'events.db-shm',
      'events.db-wal',
      'writer.json',
      'writer.lock',
    ]);
    await state.close();
  });

  test('is made private when it is empty, or ours', async () => {
    const directory = temporaryDirectory();
    chmodSync(directory, 0o755);
    await (await open(directory)).close();
    expect(mode(directory)).toBe(0o700);
    chmodSync(directory, 0o777);
    await (await open(directory)).close();
    expect(mode(directory)).toBe(0o700);
  });

  test("with other people's things in it keeps its mode, and is refused where others may write", async () => {
    const directory = temporaryDirectory();
    writeFileSync(join(directory, 'theirs'), '');
    chmodSync(directory, 0o777);
    await expect(open(directory)).rejects.toEqual(refusal('unsafe', `${directory}.*777`));
    expect(mode(directory)).toBe(0o777);
    chmodSync(directory, 0o755);
    await (await open(directory)).close();
    expect(mode(directory)).toBe(0o755);
    expect(mode(join(directory, 'events.db'))).toBe(0o600);
  });

  test('that is a file is refused', async () => {
    const file = join(temporaryDirectory(), 'file');
    writeFileSync(file, '');
    await expect(open(file)).rejects.toEqual(refusal('io', `${file}.*not a directory`));
    await expect(open(join(file, 'below'), { create: true })).rejects.toEqual(refusal('io', file));
  });

  test('that this user may not write to is refused, and says so', async () => {
    const theirs = temporaryDirectory();
    const locked = join(theirs, 'locked');
    mkdirSync(locked);
    chmodSync(theirs, 0o755);
    chmodSync(locked, 0o555);
    // Nothing is forbidden to root: the child gives up being root.
    const child = logChild(
      `if (process.getuid() === 0) process.seteuid(65534);
       for (const path of args) say(await open(path).then(() => 'opened', told));`,
      [locked, join(locked, 'below')],
    );
    for (let n = 0; n < 2; n += 1) {
      const said = await child.next();
      expect(said).toMatchObject({ name: 'StoreError', fault: 'readOnly' });
      expect(said).toMatchObject({ message: expect.stringMatching(`${locked}.*check its owner and mode`) });
    }
    await child.ended;
    expect(readdirSync(locked)).toEqual([]);
    chmodSync(locked, 0o700);
  });

  const shell = afterMounting('mount --bind "$FIRST" "$FIRST"; mount -o remount,bind,ro "$FIRST"');
  // Where the system allows no mounts, the test above stands for it.
  // eslint-disable-next-line no-restricted-syntax
  (shell === null ? test.skip : test)('on a read-only file system can be read, if its writer closed it', async () => {
    const directory = temporaryDirectory();
    const writer = await open(directory);
    await writer.store.append(wholeLife(1));
    await writer.close();
    const script = `say(await open(args[0]).then(() => 'opened', told));
       const read = async () => (await open(args[0], { mode: 'read' })).store.lastPosition();
       say(await read().catch(told));`;
    const child = logChild(script, [directory], shell ?? []);
    expect(await child.next()).toMatchObject({ fault: 'readOnly', message: expect.stringContaining(directory) });
    expect(await child.next()).toBe(9);
    await child.ended;

    // A log whose writer was killed has to be recovered first, for which its directory is written to.
    const killed = logChild(
      `const { store } = await open(args[0]);
       await store.append(JSON.parse(args[1]));
       process.kill(process.pid, 'SIGKILL');`,
      [directory, JSON.stringify(create(2))],
    );
    await killed.ended;
    rmSync(join(directory, 'events.db-shm'));
    const late = logChild(script, [directory], shell ?? []);
    await late.next();
    expect(await late.next()).toMatchObject({ fault: 'readOnly', message: expect.stringContaining('events.db') });
    await late.ended;
    const reader = await open(directory, { mode: 'read' });
    expect(await reader.store.lastPosition()).toBe(10);
    await reader.close();
  });
});

test('a reader of a log that is being written sees it grow, and never a part of an append', async () => {
  const directory = temporaryDirectory();
  const child = logChild(
    `const { store } = await open(args[0]);
     const events = JSON.parse(args[1]);
     say('ready');
     for (let n = 0; n < 300; n += 1) await store.append({ stream: 'backend/b' + n, expectedVersion: 0, events });
     process.stdin.resume();`,
    [
      directory,
      JSON.stringify([
        { type: 'oddity.seen', v: 1, atMs: 0, text: 'a' },
        { type: 'oddity.seen', v: 1, atMs: 0, text: 'b' },
      ]),
    ],
  );
  await child.next();
  const reader = await open(directory, { mode: 'read' });
  const sizes: number[] = [];
  await eventually(async () => {
    const records = await all(reader.store);
    expect(records.map(({ position }) => position)).toEqual(records.map((_, index) => index + 1));
    sizes.push(records.length);
    return records.length === 600 ? true : null;
  });
  expect(sizes.filter((size) => size % 2 !== 0)).toEqual([]);
  child.process.stdin?.end();
  await child.ended;
  await reader.close();
});
