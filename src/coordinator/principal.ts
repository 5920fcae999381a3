import type { Role } from './api.js';

/** Who calls, as the credential says. */
export interface Principal {
  readonly id: string;
  readonly name: string;
  readonly role: Role;
}

/** Whether the caller may know of a task that this credential submitted. */
export function maySee({ id, role }: Principal, by: string): boolean {
  return role === 'admin' || role === 'viewer' || (role === 'submitter' && id === by);
}

/** Whether the caller may decide about a task that this credential submitted. */
export function mayDecide({ id, role }: Principal, by: string): boolean {
  return role === 'admin' || (role === 'submitter' && id === by);
}
