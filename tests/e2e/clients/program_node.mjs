// The Node.js client in ordinary use. It prints what the Python programs print: see checks.py.

import assert from 'node:assert/strict';
import { DataType, MilvusClient } from '@zilliz/milvus2-sdk-node';

const address = process.argv[2].replace('http://', '');
const client = new MilvusClient({ address });
const NAME = 'node_rows';
const DIM = 8;

const vector = n => Array.from({ length: DIM }, (_, i) => Math.sin(1 + n * DIM + i));
const row = n => ({ id: n, kind: n % 2 ? 'odd' : 'even', v: vector(n) });
const rows = (first, last) => Array.from({ length: last - first }, (_, i) => row(first + i));
const ids = found => found.map(one => Number(one.id)).sort((a, b) => a - b);

function report(title, kind, ok, detail = '') {
  console.log(JSON.stringify({ title, kind, ok, detail }));
}

// The client answers with a status instead of throwing.
function succeeded(answer) {
  const status = answer.status ?? answer;
  if (status.code !== 0 || status.error_code !== 'Success') {
    throw new Error(status.reason || JSON.stringify(answer));
  }
  return answer;
}

async function check(title, act) {
  try {
    await act();
    report(title, 'works', true);
  } catch (error) {
    // some calls throw the status, which is no Error
    const [place] = (error.stack ?? '').split('\n').filter(line => line.includes('program_node'));
    const what = error.message ?? error.reason ?? JSON.stringify(error);
    report(title, 'works', false, `${error.name ?? 'status'}: ${what} (${(place ?? '').trim()})`);
  }
}

// The server must refuse it with an error that contains `refusal`.
async function lacks(title, refusal, act) {
  let message = 'it is not refused: it is a check of what works now';
  let refused = false;
  try {
    succeeded(await act());
  } catch (error) {
    message = error.details ?? error.reason ?? error.message; // some calls throw the status
    refused = message.includes(refusal);
  }
  report(title, 'lacks', refused, message);
}

await check('connect, server version, health', async () => {
  await client.connectPromise;
  assert.match(succeeded(await client.getVersion()).version, /^v2\./);
  assert.equal(succeeded(await client.checkHealth()).isHealthy, true);
});

await check('create with fields and an index, has, describe, list', async () => {
  assert.equal(succeeded(await client.hasCollection({ collection_name: NAME })).value, false);
  succeeded(
    await client.createCollection({
      collection_name: NAME,
      fields: [
        { name: 'id', data_type: DataType.Int64, is_primary_key: true },
        { name: 'kind', data_type: DataType.VarChar, max_length: 10 },
        { name: 'v', data_type: DataType.FloatVector, dim: DIM },
      ],
      consistency_level: 'Strong',
    })
  );
  assert.equal(succeeded(await client.hasCollection({ collection_name: NAME })).value, true);
  const described = succeeded(await client.describeCollection({ collection_name: NAME }));
  assert.deepEqual(described.schema.fields.map(field => field.name), ['id', 'kind', 'v']);
  const listed = succeeded(await client.showCollections());
  assert.ok(listed.data.some(one => one.name === NAME));
});

await check('insert, flush, statistics', async () => {
  const answer = succeeded(await client.insert({ collection_name: NAME, data: rows(0, 300) }));
  assert.equal(Number(answer.insert_cnt), 300);
  succeeded(await client.flushSync({ collection_names: [NAME] }));
  const statistics = succeeded(await client.getCollectionStatistics({ collection_name: NAME }));
  assert.equal(Number(statistics.data.row_count), 300);
});

await check('create, describe and list indexes; load', async () => {
  succeeded(
    await client.createIndex({
      collection_name: NAME,
      field_name: 'v',
      index_name: 'v_index',
      index_type: 'HNSW',
      metric_type: 'L2',
      params: { M: 8, efConstruction: 64 },
    })
  );
  const described = succeeded(await client.describeIndex({ collection_name: NAME, field_name: 'v' }));
  assert.equal(described.index_descriptions[0].index_name, 'v_index');
  assert.deepEqual(succeeded(await client.listIndexes({ collection_name: NAME })).indexes, ['v_index']);
  succeeded(await client.loadCollectionSync({ collection_name: NAME }));
  assert.equal(succeeded(await client.getLoadState({ collection_name: NAME })).state, 'LoadStateLoaded');
});

await check('search with `ef`, a filter, output fields', async () => {
  const found = succeeded(
    await client.search({
      collection_name: NAME,
      data: vector(7),
      limit: 3,
      params: { ef: 64 },
      output_fields: ['id', 'kind'],
    })
  );
  assert.equal(found.results.length, 3);
  assert.equal(Number(found.results[0].id), 7);
  assert.equal(found.results[0].kind, 'odd');
  const even = succeeded(
    await client.search({ collection_name: NAME, data: vector(7), limit: 5, filter: 'kind == "even"' })
  );
  assert.ok(even.results.every(one => Number(one.id) % 2 === 0));
  assert.equal(even.results.length, 5);
});

await check('range search, several vectors at once', async () => {
  const near = succeeded(
    await client.search({ collection_name: NAME, data: vector(9), limit: 100, params: { radius: 3, ef: 300 } })
  );
  assert.ok(near.results.length > 0 && near.results.length < 100);
  assert.ok(near.results.every(one => one.score < 3));
  const both = succeeded(await client.search({ collection_name: NAME, data: [vector(1), vector(2)], limit: 1 }));
  assert.deepEqual(both.results.map(([one]) => Number(one.id)), [1, 2]);
});

await check('query, get, count', async () => {
  const found = succeeded(await client.query({ collection_name: NAME, filter: 'id < 3', output_fields: ['kind'] }));
  assert.deepEqual(found.data.map(one => one.kind).sort(), ['even', 'even', 'odd']);
  const got = succeeded(await client.get({ collection_name: NAME, ids: [4, 5], output_fields: ['id', 'v'] }));
  assert.deepEqual(ids(got.data), [4, 5]);
  assert.equal(got.data[0].v.length, DIM);
  assert.equal(Number(succeeded(await client.count({ collection_name: NAME })).data), 300);
});

await check('upsert, delete by ids and by filter, reads right after it', async () => {
  succeeded(await client.upsert({ collection_name: NAME, data: [{ ...row(0), kind: 'new' }] }));
  const [changed] = succeeded(await client.get({ collection_name: NAME, ids: [0] })).data;
  assert.equal(changed.kind, 'new');
  succeeded(await client.delete({ collection_name: NAME, ids: [1] }));
  succeeded(await client.delete({ collection_name: NAME, filter: 'id in [2, 3]' }));
  const left = succeeded(await client.query({ collection_name: NAME, filter: 'id < 6', output_fields: ['id'] }));
  assert.deepEqual(ids(left.data), [0, 4, 5]);
  assert.equal(Number(succeeded(await client.count({ collection_name: NAME })).data), 297);
});

await check('query iterator', async () => {
  const seen = [];
  const iterator = await client.queryIterator({
    collection_name: NAME,
    filter: 'id >= 0',
    output_fields: ['id'],
    batchSize: 100,
  });
  for await (const batch of iterator) seen.push(...batch);
  assert.equal(new Set(ids(seen)).size, 297);
});

await check('search iterator', async () => {
  const seen = [];
  const iterator = await client.searchIterator({
    collection_name: NAME,
    data: vector(7),
    batchSize: 50,
    output_fields: ['id'],
    params: { ef: 300 },
  });
  for await (const batch of iterator) seen.push(...batch);
  assert.equal(Number(seen[0].id), 7);
  assert.ok(new Set(ids(seen)).size > 200, `${seen.length} rows`);
});

await check('JSON, dynamic and nullable fields, automatic ids', async () => {
  const collection_name = 'node_types';
  succeeded(
    await client.createCollection({
      collection_name,
      enable_dynamic_field: true,
      fields: [
        { name: 'id', data_type: DataType.Int64, is_primary_key: true, autoID: true },
        { name: 'j', data_type: DataType.JSON, nullable: true },
        { name: 'f', data_type: DataType.Float, nullable: true },
        { name: 'v', data_type: DataType.FloatVector, dim: DIM },
      ],
      index_params: [{ field_name: 'v', index_type: 'AUTOINDEX', metric_type: 'COSINE' }],
      consistency_level: 'Strong',
    })
  );
  succeeded(await client.loadCollectionSync({ collection_name }));
  const data = [
    { j: { a: 1 }, f: 0.5, v: vector(1), tone: 'dark', note: 'a key that no read names' },
    { j: null, f: null, v: vector(2), tone: 'light' },
  ];
  const inserted = succeeded(await client.insert({ collection_name, data }));
  assert.equal(inserted.succ_index.length, 2);
  const fields = ['j', 'f', 'tone'];
  // a query of this client shows dynamic fields as the field `$meta`, a search by their names
  const [dark] = succeeded(await client.query({ collection_name, filter: 'j["a"] == 1', output_fields: fields })).data;
  assert.deepEqual([dark.j, dark.f, dark.$meta], [{ a: 1 }, 0.5, { tone: 'dark' }]);
  const [light] = succeeded(await client.query({ collection_name, filter: 'f is null', output_fields: fields })).data;
  assert.deepEqual([light.j, light.f, light.$meta], [null, null, { tone: 'light' }]);
  const [hit] = succeeded(
    await client.search({ collection_name, data: vector(2), limit: 1, output_fields: ['tone'] })
  ).results;
  assert.equal(hit.tone, 'light');
  succeeded(await client.dropCollection({ collection_name }));
});

await check('partitions', async () => {
  const partition = { collection_name: NAME, partition_name: 'part' };
  succeeded(await client.createPartition(partition));
  assert.equal(succeeded(await client.hasPartition(partition)).value, true);
  succeeded(await client.insert({ ...partition, data: rows(900, 902) }));
  const found = succeeded(
    await client.query({ collection_name: NAME, partition_names: ['part'], filter: 'id >= 0', output_fields: ['id'] })
  );
  assert.deepEqual(ids(found.data), [900, 901]);
  succeeded(await client.releasePartitions({ collection_name: NAME, partition_names: ['part'] }));
  succeeded(await client.dropPartition(partition));
});

await check('aliases, rename', async () => {
  succeeded(await client.createAlias({ collection_name: NAME, alias: 'node_alias' }));
  assert.equal(succeeded(await client.describeAlias({ collection_name: NAME, alias: 'node_alias' })).collection, NAME);
  succeeded(await client.dropAlias({ alias: 'node_alias' }));
  succeeded(await client.renameCollection({ collection_name: NAME, new_collection_name: 'node_other' }));
  succeeded(await client.renameCollection({ collection_name: 'node_other', new_collection_name: NAME }));
});

await check('databases: create, list, alter, use, drop', async () => {
  succeeded(await client.createDatabase({ db_name: 'node_db' }));
  assert.ok(succeeded(await client.listDatabases()).db_names.includes('node_db'));
  succeeded(await client.alterDatabase({ db_name: 'node_db', properties: { 'database.replica.number': 1 } }));
  const other = new MilvusClient({ address, database: 'node_db' });
  assert.deepEqual(succeeded(await other.showCollections()).data, []);
  await other.closeConnection();
  succeeded(await client.dropDatabase({ db_name: 'node_db' }));
});

await check('compact, its state', async () => {
  const { compactionID } = succeeded(await client.compact({ collection_name: NAME }));
  const { state } = succeeded(await client.getCompactionState({ compactionID }));
  assert.ok(['Executing', 'Completed'].includes(state), state);
});

await check('hybrid search', async () => {
  const { results } = succeeded(
    await client.search({
      collection_name: NAME,
      data: [
        { anns_field: 'v', data: vector(1) },
        { anns_field: 'v', data: vector(2) },
      ],
      limit: 3,
    })
  );
  assert.equal(results.length, 3);
});
await check('group by', async () => {
  const { results } = succeeded(
    await client.search({
      collection_name: NAME,
      data: vector(1),
      limit: 3,
      group_by_field: 'kind',
      output_fields: ['kind'],
    })
  );
  const kinds = results.map((hit) => hit.kind);
  assert.equal(new Set(kinds).size, kinds.length);
  assert.ok(kinds.length > 0);
});
await check('scalar index of a loaded collection: create, drop', async () => {
  const field = { collection_name: NAME, field_name: 'kind' };
  succeeded(await client.createIndex({ ...field, index_type: 'INVERTED' }));
  succeeded(await client.dropIndex(field));
});
await check('users', async () => {
  succeeded(await client.createUser({ username: 'node_ann', password: 'password' }));
  const { usernames } = succeeded(await client.listUsers());
  assert.ok(usernames.includes('node_ann'));
  succeeded(await client.deleteUser({ username: 'node_ann' }));
});

const created = (name, ...fields) =>
  client.createCollection({
    collection_name: name,
    fields: [{ name: 'id', data_type: DataType.Int64, is_primary_key: true }, ...fields],
  });
await check('arrays: insert, filters, query', async () => {
  const name = 'node_array';
  succeeded(
    await created(
      name,
      { name: 'a', data_type: DataType.Array, element_type: DataType.Int32, max_capacity: 4 },
      { name: 'v', data_type: DataType.FloatVector, dim: DIM }
    )
  );
  const data = [[1, 2], [], [3]].map((a, id) => ({ id, a, v: vector(id) }));
  succeeded(await client.insert({ collection_name: name, data }));
  const index = { field_name: 'v', index_type: 'FLAT', metric_type: 'L2' };
  succeeded(await client.createIndex({ collection_name: name, ...index }));
  succeeded(await client.loadCollectionSync({ collection_name: name }));
  const filter = 'array_contains(a, 2) or array_length(a) == 0';
  const asked = { collection_name: name, filter, output_fields: ['a'], consistency_level: 'Strong' };
  assert.deepEqual(succeeded(await client.query(asked)).data.map((row) => row.a), [[1, 2], []]);
  succeeded(await client.dropCollection({ collection_name: name }));
});
await check('sparse vectors: create, insert, index, search, output', async () => {
  const collection_name = 'node_sparse';
  succeeded(await created(collection_name, { name: 'v', data_type: DataType.SparseFloatVector }));
  const rows = [0, 1, 2].map(id => ({ id, v: { [id + 1]: 1.5, 0: 0.5 } }));
  succeeded((await client.insert({ collection_name, data: rows })).status);
  const index = { index_type: 'SPARSE_INVERTED_INDEX', metric_type: 'IP' };
  succeeded(await client.createIndex({ collection_name, field_name: 'v', ...index }));
  succeeded(await client.loadCollectionSync({ collection_name }));
  const found = await client.search({
    collection_name,
    data: { 2: 2 },
    limit: 3,
    output_fields: ['id', 'v'],
    consistency_level: 'Strong',
  });
  succeeded(found.status);
  assert.deepEqual(found.results.map(hit => [hit.id, hit.score, hit.v]), [['1', 3, { 0: 0.5, 2: 1.5 }]]);
  succeeded(await client.dropCollection({ collection_name }));
});
await check('text analyzers: create, drop', async () => {
  succeeded(
    await created(
      'node_text',
      { name: 't', data_type: DataType.VarChar, max_length: 100, enable_analyzer: true },
      { name: 'v', data_type: DataType.FloatVector, dim: DIM }
    )
  );
  succeeded(await client.dropCollection({ collection_name: 'node_text' }));
});
await check('partition key: create, drop', async () => {
  succeeded(
    await created(
      'node_tenants',
      { name: 't', data_type: DataType.VarChar, max_length: 100, is_partition_key: true },
      { name: 'v', data_type: DataType.FloatVector, dim: DIM }
    )
  );
  succeeded(await client.dropCollection({ collection_name: 'node_tenants' }));
});

await check('half-precision vectors: create, drop', async () => {
  succeeded(await created('node_half', { name: 'v', data_type: DataType.Float16Vector, dim: DIM }));
  succeeded(await client.dropCollection({ collection_name: 'node_half' }));
});

await check('release, drop', async () => {
  succeeded(await client.releaseCollection({ collection_name: NAME }));
  succeeded(await client.dropCollection({ collection_name: NAME }));
  assert.equal(succeeded(await client.hasCollection({ collection_name: NAME })).value, false);
});

await client.closeConnection();
