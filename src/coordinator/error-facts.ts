/** What can be read off anything that was thrown, whatever made it: errors of other realms fail `instanceof`. */

/** `ENOENT` and the like; null when there is none. */
export const errorCode = (error: unknown): string | null =>
  typeof error === 'object' && error !== null && 'code' in error && typeof error.code === 'string' ? error.code : null;

export const errorMessage = (error: unknown): string => {
  const hasMessage = typeof error === 'object' && error !== null && 'message' in error;
  const message = hasMessage && typeof error.message === 'string' ? error.message : String(error);
  return message === '' ? (errorCode(error) ?? 'unknown error') : message;
};

export const errorStatus = (error: unknown): number | null =>
  typeof error === 'object' && error !== null && 'statusCode' in error && typeof error.statusCode === 'number'
    ? error.statusCode
    : null;
