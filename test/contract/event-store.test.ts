import { MemoryEventStore } from '../../src/events/memory-store.js';
import { openStateDirectory } from '../../src/events/state-directory.js';
import { temporaryDirectory } from '../support/temporary-directory.js';
import { describeEventStore } from './event-store.contract.js';

const options = { writer: 'writer-1', nowMs: () => 1000 };

describeEventStore('in memory', async () => {
  const store = new MemoryEventStore(options);
  return { store, reopen: async () => store.reopen(), close: () => store.close() };
});

describeEventStore('in SQLite', async () => {
  const directory = temporaryDirectory();
  const open = () => openStateDirectory(directory, { mode: 'write', ...options });
  let state = await open();
  return {
    store: state.store,
    reopen: async () => {
      await state.close();
      state = await open();
      return state.store;
    },
    close: () => state.close(),
  };
});
