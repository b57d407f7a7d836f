//! A new key for the secrets of a project. Nodes keep the data key in memory, so none may run.

use surehook_types::time::Timestamp;

use super::{
    INSERT_DATA_KEY, PostgresOpenError, PostgresOptions,
    connection::PgConnection,
    new_connector,
    pool::{Access, Pool},
    read_data_key, run_blocking, schema, unwrap_data_key,
};
use crate::{
    sealing::{DataKeys, QuarantinedHead, SealedPlace, WrappedDataKey},
    sql::{Result, SqlConnection, SqlError, params},
    sqlite::{RotationReport, SecretKey, SecretKeyId},
};

const NODES: &str = "SELECT count(*) FROM nodes WHERE lease_until > surehook_now()";
const QUARANTINED: &str = "SELECT id FROM quarantine";
const HEAD: &str = "SELECT headers FROM quarantine WHERE id = ?1";
const REPLACE_HEAD: &str = "UPDATE quarantine SET headers = ?2 WHERE id = ?1";

/// Encrypts all secrets of the project with a new data key under `new`, in one transaction: after a crash
/// the old or the new key opens the database. `options` has the current key.
pub async fn rotate_database_key(
    options: &PostgresOptions,
    new: &SecretKey,
    now: Timestamp,
) -> std::result::Result<RotationReport, PostgresOpenError> {
    let connector = new_connector(options, false)?;
    schema::check_version(&connector.open().await?.client, connector.schema()).await?;
    let pool = Pool::new(connector.into(), 1);
    let (old, new) = (options.secret_key.clone(), new.clone());
    let (found, report) =
        (old.id(), RotationReport { old: old.id(), new: new.id(), leftover: None });
    let rotate = move |connection: &PgConnection<'_>| {
        let nodes: i64 = connection.read_one(NODES, params![], |row| row.get(0))?;
        if nodes > 0 {
            return Ok(Err(Refusal::InUse(nodes)));
        }
        let stored = read_data_key(connection)?.ok_or(SqlError::RowMissing)?;
        if stored.by != old.id() {
            return Ok(Err(Refusal::Key(stored.by)));
        }
        replace_keys(connection, &unwrap_data_key(&old, &stored)?, &new, now).map(Ok)
    };
    match run_blocking(&pool, Access::WriteAlone, rotate).await {
        Ok(Ok(())) => Ok(report),
        Ok(Err(Refusal::InUse(nodes))) => Err(PostgresOpenError::InUse(nodes)),
        Ok(Err(Refusal::Key(needed))) => Err(PostgresOpenError::SecretKeyWrong { needed, found }),
        Err(error) => Err(PostgresOpenError::Database(error.to_string())),
    }
}

enum Refusal {
    InUse(i64),
    Key(SecretKeyId),
}

fn replace_keys(
    connection: &PgConnection<'_>,
    old: &DataKeys,
    secret_key: &SecretKey,
    now: Timestamp,
) -> Result<()> {
    let (new, WrappedDataKey { id, wrapped, by }) = DataKeys::generate(secret_key)?;
    connection.run("DELETE FROM data_keys", params![])?;
    connection.run(INSERT_DATA_KEY, params![id, wrapped, by.to_bytes(), now.as_millis()])?;
    reseal_specs(connection, old, &new, "sources", SealedPlace::source)?;
    reseal_specs(connection, old, &new, "destinations", SealedPlace::destination)?;
    let ids: Vec<[u8; 16]> =
        connection.read_all(QUARANTINED, params![], |row| row.get::<[u8; 16]>(0))?;
    for id in ids {
        let head: Vec<u8> = connection.read_one(HEAD, params![id], |row| row.get(0))?;
        let head = QuarantinedHead::unseal(old, id, &head)?.seal(&new, id)?;
        connection.run(REPLACE_HEAD, params![id, head])?;
    }
    Ok(())
}

fn reseal_specs(
    connection: &PgConnection<'_>,
    old: &DataKeys,
    new: &DataKeys,
    table: &str,
    place: fn([u8; 16]) -> SealedPlace,
) -> Result<()> {
    let all = format!("SELECT id, spec FROM {table}");
    let rows: Vec<([u8; 16], String)> =
        connection.read_all(&all, params![], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let update = format!("UPDATE {table} SET spec = ?2 WHERE id = ?1");
    for (id, stored) in rows {
        let spec = old.unseal_spec(place(id), &stored)?;
        connection.run(&update, params![id, new.seal_spec(place(id), &spec)?])?;
    }
    Ok(())
}
