// Conversations in the browser's database: a record each. Nothing of them is sent anywhere.

const NAME = "terrace", STORE = "conversations";
let database = null;

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

// Opens the database, and reads all conversations.
export async function open() {
  const opening = indexedDB.open(NAME, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE, { keyPath: "id" });
  database = await done(opening);
  // A later page may change the database's form.
  database.onversionchange = () => database.close();
  return done(database.transaction(STORE).objectStore(STORE).getAll());
}

const change = (what) => {
  if (!database) return Promise.resolve();
  const transaction = database.transaction(STORE, "readwrite");
  what(transaction.objectStore(STORE));
  return new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
};

export const write = (conversation) => change((store) => store.put(conversation));
export const remove = (id) => change((store) => store.delete(id));
export const read = (id) => (database ? done(database.transaction(STORE).objectStore(STORE).get(id)) : Promise.resolve());
