// Calls of the server. Every call that is no GET has the header by which the server knows its own pages.

// `status` 0: nothing answered, or something that is no Elanus.
export class Failure extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function sent(method, path, body) {
  const headers = method === "GET" ? {} : { "X-Elanus-Request": "console", "Content-Type": "application/json" };
  let response, answer;
  try {
    response = await fetch(`/ui/api/${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    answer = await response.json();
  } catch {
    throw new Failure(0, 0, "The server does not answer.");
  }
  if (!response.ok || answer.code !== 0) throw new Failure(response.status, answer.code, answer.message);
  return answer;
}

export const session = () => sent("GET", "session");
export const signIn = (user, password) => sent("POST", "session", { user, password });
export const signOut = () => sent("DELETE", "session");
export const status = async () => (await sent("GET", "status")).data;
export const findings = async () => (await sent("GET", "doctor")).data.findings;
export const auditRecords = async () => (await sent("GET", "audit")).data.records;
export const answer = (path, body = {}) => sent("POST", `call/${path}`, body);
export const call = async (path, body = {}) => (await sent("POST", `call/${path}`, body)).data;
export const view = async (path, body = {}) => (await sent("POST", `view/${path}`, body)).data;
