//! Sealed values, upgrades from plain text, and what is left of it in the files.

use std::fs;

use serde_json::Value;
use surehook_core::store::AdminStore as _;
use surehook_webhooks::key::fingerprint;
use tempfile::TempDir;

use super::{
    super::{
        DATABASE, NewSecretKey, SqliteOptions, SqliteStore, rotate_secret_key, schema,
        secret_key::SECRET_KEY_FILE,
    },
    *,
};
use crate::sealing::{DataKey, random};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn keys() -> DataKeys {
    let bytes = random().unwrap();
    DataKeys { current: DataKey::new(random().unwrap(), &bytes).unwrap() }
}

#[test]
fn sealed_value_opens_only_in_its_place_with_its_key() {
    let (keys, others) = (keys(), keys());
    let place = SealedPlace::source([1; 16]);
    let sealed = keys.seal(place, b"canary").unwrap();

    assert_eq!(keys.unseal(place, &sealed).unwrap(), b"canary");
    assert_ne!(keys.seal(place, b"canary").unwrap(), sealed, "the nonce is random");
    assert!(!sealed.windows(6).any(|window| window == b"canary"));
    for other in [SealedPlace::source([2; 16]), SealedPlace::destination([1; 16])] {
        assert!(keys.unseal(other, &sealed).is_err(), "case: {other:?}");
    }
    assert!(others.unseal(place, &sealed).is_err());
    for index in 0..sealed.len() {
        let mut damaged = sealed.clone();
        damaged[index] ^= 1;
        assert!(keys.unseal(place, &damaged).is_err(), "flipped byte {index}");
        assert!(keys.unseal(place, &sealed[..index]).is_err(), "cut at {index}");
    }
}

#[test]
fn stored_spec_shows_only_what_sql_reads() {
    let keys = keys();
    let place = SealedPlace::source([1; 16]);
    let spec = r#"{"name":"shop","secrets":["canary"],"redact":["pin"],"strip_secrets":true,"retention":{"events":"1d"}}"#;

    let stored = keys.seal_spec(place, spec).unwrap();

    let fields: Value = serde_json::from_str(&stored).unwrap();
    let names: Vec<&String> = fields.as_object().unwrap().keys().collect();
    assert_eq!(names, ["redact", "retention", "sealed", "strip_secrets"]);
    assert_eq!(keys.unseal_spec(place, &stored).unwrap(), spec);
    assert!(keys.unseal_spec(place, spec).is_err(), "plain text is refused");
    assert!(keys.unseal_spec(place, "no JSON").is_err());
}

#[test]
fn quarantined_head_is_restored_exactly() {
    let keys = keys();
    for (path, query) in [("/a/b", Some("token=1")), ("", Some("")), ("/", None)] {
        let head = QuarantinedHead {
            path: path.to_owned(),
            query: query.map(str::to_owned),
            headers: HeaderBlock::from_bytes(b"x-a: \xff\r\nx-b: 2\r\n".to_vec()),
        };
        let sealed = head.seal(&keys, [7; 16]).unwrap();
        assert_eq!(QuarantinedHead::unseal(&keys, [7; 16], &sealed).unwrap(), head);
        assert!(QuarantinedHead::unseal(&keys, [8; 16], &sealed).is_err());
    }
}

/// A folder as version 26 of the schema left it: secrets in live, deleted and replaced specs, in the
/// headers of a stored request and in quarantine. Closed without a checkpoint, as after a crash.
fn write_plain_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let old = schema::open_unchanged(&folder.path().join(DATABASE)).unwrap();
    old.execute_batch("PRAGMA page_size = 8192; PRAGMA journal_mode = WAL;").unwrap();
    schema::migrate_up_to(&old, 26);
    let spec = |canary: &str| {
        format!(
            r#"{{"name":"shop","verify":{{"token":{{"header":"x-gate"}}}},"secrets":["CANARY-{canary}"],"redact":["pin"]}}"#
        )
    };
    let long = "x".repeat(20_000);
    for (seq, name, deleted) in [(1, "shop", "NULL"), (2, "gone", "5")] {
        let insert = format!("INSERT INTO sources VALUES ({seq}, ?1, ?2, ?3, 1, 1, {deleted})");
        let mut id = [0_u8; 16];
        id[15] = seq;
        old.execute(&insert, params![id, name, spec(&format!("replaced-{long}"))]).unwrap();
        let update = "UPDATE sources SET spec = ?2 WHERE seq = ?1";
        old.execute(update, params![seq, spec(name)]).unwrap();
    }
    old.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let destination = r#"{"name":"crm","url":"https://hooks.slack.com/services/T0/B0/CANARY-url","headers":{"X-Key":"CANARY-header"}}"#;
    let insert = "INSERT INTO destinations VALUES (1, zeroblob(16), 'crm', ?1, 1, 1, NULL)";
    old.execute(insert, [destination]).unwrap();
    old.execute_batch(
        "INSERT INTO payloads VALUES
             (1, '/', NULL, '::1', CAST('x-gate: CANARY-request' || char(13,10) || 'x-other: kept' || char(13,10) AS BLOB), x'00');
         INSERT INTO events (id, request_id, source, received_at, body_bytes, fingerprint, payload)
              VALUES (zeroblob(16), zeroblob(16), 1, 1, 1, zeroblob(32), 1);
         INSERT INTO quarantine (id, source_id, fingerprint, received_at, seen_at, times, code, method,
                                 path, query, remote, headers, body_bytes, body)
              VALUES (zeroblob(16), x'00000000000000000000000000000001', zeroblob(32), 1, 1, 1, 'mismatch', 'POST', '/CANARY-path',
                      'token=CANARY-query', '::1', CAST('x-gate: CANARY-quarantine' || char(13,10) AS BLOB), 0, x'');",
    )
    .unwrap();
    drop(old);
    folder
}

/// The files of a folder that contain the canary.
fn files_with_canary(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let has_canary = |file: &std::path::PathBuf| {
        let bytes = fs::read(file).unwrap();
        bytes.windows(6).any(|window| window == b"CANARY")
    };
    files.filter(has_canary).map(|file| file.display().to_string()).collect()
}

fn options(folder: &Path, secret_key: Option<SecretKey>) -> SqliteOptions {
    SqliteOptions { secret_key, ..SqliteOptions::new(folder) }
}

async fn assert_opens_with_everything(folder: &Path, secret_key: Option<SecretKey>) {
    use surehook_core::quarantine::QuarantineStore as _;
    use surehook_core::store::PageRequest;

    let store = SqliteStore::open(&options(folder, secret_key), NOW).unwrap();
    let configuration = store.load_configuration().await.unwrap();
    let [source] = &configuration.sources[..] else { panic!("{configuration:?}") };
    assert_eq!(source.spec.secrets[0].literal(), Some("CANARY-shop"));
    let [destination] = &configuration.destinations[..] else { panic!("{configuration:?}") };
    assert_eq!(destination.spec.url, "https://hooks.slack.com/services/T0/B0/CANARY-url");
    assert_eq!(configuration.past.sources[0].redact, ["pin"]);
    let page = PageRequest { after: None, limit: 10 };
    let quarantined = store.list_quarantined(None, page).await.unwrap();
    assert_eq!(quarantined[0].path, "/CANARY-path");
    assert_eq!(quarantined[0].query.as_deref(), Some("token=CANARY-query"));
    assert_eq!(quarantined[0].headers.as_bytes(), b"x-gate: CANARY-quarantine\r\n");
    store.close().await;
}

#[tokio::test]
async fn plain_secrets_of_an_older_folder_are_gone_from_all_files_after_the_first_start() {
    let folder = write_plain_folder();
    assert_eq!(files_with_canary(folder.path()).len(), 2, "database and log");

    let store = SqliteStore::open(&options(folder.path(), None), NOW).unwrap();

    // While running, and with whatever the log holds.
    assert_eq!(files_with_canary(folder.path()), Vec::<String>::new());
    store.close().await;
    assert_eq!(files_with_canary(folder.path()), Vec::<String>::new());
    let reader = schema::open_reader(&folder.path().join(DATABASE)).unwrap();
    let headers: Vec<u8> =
        reader.query_row("SELECT headers FROM payloads", [], |row| row.get(0)).unwrap();
    assert_eq!(headers, "x-gate: •••\r\nx-other: kept\r\n".as_bytes());
    drop(reader);
    assert_opens_with_everything(folder.path(), None).await;
    assert_eq!(files_with_canary(folder.path()), Vec::<String>::new());
}

#[tokio::test]
async fn first_start_that_is_interrupted_before_old_copies_are_removed_removes_them_at_the_next() {
    let folder = write_plain_folder();
    let file = folder.path().join(DATABASE);
    let mut connection =
        schema::prepare_writer(schema::open_unchanged(&file).unwrap(), &file).unwrap();
    let key = secret_key::find_or_create(folder.path(), None).unwrap();
    replace_keys(&mut connection, None, &key, NOW).unwrap();
    drop(connection);
    assert!(!files_with_canary(folder.path()).is_empty());

    assert_opens_with_everything(folder.path(), None).await;

    assert_eq!(files_with_canary(folder.path()), Vec::<String>::new());
}

#[tokio::test]
async fn missing_or_wrong_key_is_refused_and_changes_nothing() {
    let folder = write_plain_folder();
    assert_opens_with_everything(folder.path(), None).await;
    let contents = || {
        let mut files: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|file| (file.clone(), fingerprint(&fs::read(file).unwrap())))
            // The log and its index, which hold nothing here.
            .filter(|(file, _)| {
                !file.ends_with("surehook.db-shm") && !file.ends_with("surehook.db-wal")
            })
            .collect();
        files.sort();
        files
    };
    let key_file = folder.path().join(SECRET_KEY_FILE);
    let other_folder = tempfile::tempdir().unwrap();
    let key = SecretKey::read(&key_file).unwrap();
    let before = contents();

    let other = SecretKey::generate().unwrap();
    let wrong = SqliteStore::open(&options(folder.path(), Some(other.clone())), NOW).unwrap_err();
    assert!(matches!(wrong, OpenError::SecretKeyWrong { in_folder: true, .. }), "{wrong}");
    assert!(wrong.to_string().contains("surehook secret-key rotate"), "{wrong}");
    assert_eq!(contents(), before);

    fs::rename(&key_file, other_folder.path().join("key")).unwrap();
    let before = contents();
    let missing = SqliteStore::open(&options(folder.path(), None), NOW).unwrap_err();
    assert!(matches!(missing, OpenError::SecretKeyMissing { .. }), "{missing}");
    assert!(missing.to_string().contains("secret_key_file"), "{missing}");
    assert_eq!(contents(), before, "no key is created in its place");

    other.create_file(&key_file).unwrap();
    let before = contents();
    let wrong = SqliteStore::open(&options(folder.path(), None), NOW).unwrap_err();
    assert!(matches!(wrong, OpenError::SecretKeyWrong { in_folder: false, .. }), "{wrong}");
    assert_eq!(contents(), before);

    fs::write(&key_file, "not a key").unwrap();
    let invalid = SqliteStore::open(&options(folder.path(), None), NOW).unwrap_err();
    assert!(matches!(invalid, OpenError::SecretKeyFile(..)), "{invalid}");
    assert_opens_with_everything(folder.path(), Some(key)).await;
}

#[tokio::test]
async fn rotation_in_the_folder_keeps_the_old_key_for_old_backups() {
    let folder = write_plain_folder();
    assert_opens_with_everything(folder.path(), None).await;
    let old = SecretKey::read(&folder.path().join(SECRET_KEY_FILE)).unwrap();
    let backup = folder.path().join("backup.db");
    fs::copy(folder.path().join(DATABASE), &backup).unwrap();

    let new = NewSecretKey::InFolder(SecretKey::generate().unwrap());
    let report = rotate_secret_key(folder.path(), None, &new, NOW).unwrap();

    assert_eq!((report.old, report.leftover), (old.id(), None));
    let current = SecretKey::read(&folder.path().join(SECRET_KEY_FILE)).unwrap();
    assert_eq!(current.id(), report.new);
    assert_opens_with_everything(folder.path(), None).await;
    assert!(SqliteStore::open(&options(folder.path(), Some(old)), NOW).is_err());

    super::super::restore(&backup, folder.path(), true, NOW).unwrap();
    assert_opens_with_everything(folder.path(), None).await;
}

#[tokio::test]
async fn rotation_to_an_external_key_renames_the_key_in_the_folder() {
    let folder = write_plain_folder();
    assert_opens_with_everything(folder.path(), None).await;
    let old = SecretKey::read(&folder.path().join(SECRET_KEY_FILE)).unwrap();
    let external = SecretKey::generate().unwrap();

    let new = NewSecretKey::External(external.clone());
    rotate_secret_key(folder.path(), None, &new, NOW).unwrap();

    assert!(!folder.path().join(SECRET_KEY_FILE).exists());
    assert!(secret_key::file_of(folder.path(), old.id()).exists());
    let refused = SqliteStore::open(&options(folder.path(), None), NOW).unwrap_err();
    assert!(matches!(refused, OpenError::SecretKeyMissing { .. }), "{refused}");
    assert_opens_with_everything(folder.path(), Some(external.clone())).await;

    let in_folder = NewSecretKey::InFolder(SecretKey::generate().unwrap());
    rotate_secret_key(folder.path(), Some(&external), &in_folder, NOW).unwrap();
    assert_opens_with_everything(folder.path(), None).await;
}

#[tokio::test]
async fn interrupted_rotation_opens_before_and_after_its_commit() {
    let folder = write_plain_folder();
    assert_opens_with_everything(folder.path(), None).await;
    let file = folder.path().join(DATABASE);
    let old = SecretKey::read(&folder.path().join(SECRET_KEY_FILE)).unwrap();
    let new = SecretKey::generate().unwrap();
    new.create_file(&secret_key::file_of(folder.path(), new.id())).unwrap();

    assert_opens_with_everything(folder.path(), None).await;

    let mut connection =
        schema::prepare_writer(schema::open_unchanged(&file).unwrap(), &file).unwrap();
    let keys = DataKeys::load(&connection, &old).unwrap().unwrap();
    keys.rotate(&mut connection, &new, NOW).unwrap();
    drop(connection);
    assert_opens_with_everything(folder.path(), None).await;

    let current = SecretKey::read(&folder.path().join(SECRET_KEY_FILE)).unwrap();
    assert_eq!(current.id(), new.id(), "the start has completed the rotation");
    assert!(secret_key::file_of(folder.path(), old.id()).exists());
    // Between the two renames.
    fs::rename(folder.path().join(SECRET_KEY_FILE), secret_key::file_of(folder.path(), new.id()))
        .unwrap();
    assert_opens_with_everything(folder.path(), None).await;
    assert!(folder.path().join(SECRET_KEY_FILE).exists());
}

#[tokio::test]
async fn specs_swapped_between_rows_are_refused() {
    let folder = write_plain_folder();
    assert_opens_with_everything(folder.path(), None).await;
    let file = Connection::open(folder.path().join(DATABASE)).unwrap();
    file.execute_batch(
        "UPDATE sources SET spec = (SELECT spec FROM sources WHERE name = 'gone') WHERE name = 'shop'",
    )
    .unwrap();
    drop(file);

    let store = SqliteStore::open(&options(folder.path(), None), NOW).unwrap();

    let error = store.load_configuration().await.unwrap_err().to_string();
    assert!(error.contains("sources.spec is damaged or belongs elsewhere"), "{error}");
}
