import { describe, expect, test } from '@jest/globals';
import { StoreError } from '../../src/events/store.js';
import { grant } from '../support/fake-coordinator.js';
import { taskId } from '../support/ids.js';
import { WorkerWorld } from '../support/worker-world.js';

const MANY = 300;

/** A worker to which many tasks are given in one answer, the first of them twice. */
async function given(): Promise<WorkerWorld> {
  const world = new WorkerWorld();
  await world.start();
  const grants = Array.from({ length: MANY }, (_, n) => grant({ taskId: taskId(n + 1) }));
  world.coordinator.grants.push(...grants, grant({ taskId: taskId(1) }));
  return world;
}

const acquire = (world: WorkerWorld): Promise<unknown> => world.worker.acquire(new AbortController().signal);

describe('many tasks that are given in one answer', () => {
  test('become jobs in one transaction, one job for each', async () => {
    const world = await given();
    let transactions = 0;
    world.onAppend = (when) => {
      if (when === 'before') transactions += 1;
    };
    await acquire(world);
    expect(await world.jobs()).toHaveLength(MANY);
    expect(transactions).toBe(1);
  });

  test('INV-3 are all renewed while their jobs are still being recorded, so that nobody else gets them', async () => {
    const world = await given();
    world.onAppend = () => {
      world.onAppend = () => undefined;
      void world.worker.round();
    };
    await acquire(world);
    expect(world.coordinator.renewals.at(0)).toHaveLength(MANY);
  });

  test('are let go when their jobs can not be recorded', async () => {
    const world = await given();
    world.onAppend = () => {
      throw new StoreError('full', 'the disk is full');
    };
    await expect(acquire(world)).rejects.toThrow('the disk is full');
    world.onAppend = () => undefined;
    await world.worker.round();
    expect(await world.jobs()).toEqual([]);
    expect(world.coordinator.renewals.at(-1)).toEqual([]);
  });
});
