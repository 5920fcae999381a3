/**
 * Runs `then` once, when everything that the current turn of the event loop brought has been handled. Not a wait for
 * time: work that came in together is done together.
 */
export const afterThisTurn = (then: () => void): void => {
  setImmediate(then);
};
