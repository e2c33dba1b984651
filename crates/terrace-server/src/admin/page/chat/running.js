// Which conversations are being answered by this tab, and how to stop that.

const running = new Map();

export const isRunning = (conversation) => running.has(conversation.id);
export const stop = (conversation) => running.get(conversation.id)?.abort();
export const begin = (conversation, control) => running.set(conversation.id, control);
export const end = (conversation) => running.delete(conversation.id);
