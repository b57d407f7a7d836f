//! Opens the backend of an address: `sqlite:FILE`, `postgres://…` or `redis://…`.

use std::{error::Error, sync::Arc, time::Duration};

use surehook_dedup::{
    DedupLock, PostgresDedupConfig, PostgresDedupLock, RedisDedupConfig, RedisDedupLock,
    SqliteDedupConfig, SqliteDedupLock,
};

pub(crate) async fn open(address: &str) -> Result<Arc<dyn DedupLock>, Box<dyn Error>> {
    if let Some(path) = address.strip_prefix("sqlite:") {
        let config = SqliteDedupConfig::new(path).busy_timeout(Duration::from_secs(30));
        return Ok(Arc::new(SqliteDedupLock::open(config)?));
    }
    if address.starts_with("redis") {
        return Ok(Arc::new(RedisDedupLock::new(RedisDedupConfig::single(address)?)));
    }
    let config = PostgresDedupConfig::new(address.parse()?).connections(2);
    Ok(Arc::new(PostgresDedupLock::connect(config).await?))
}
