//! Says of most new keys, without a look into the file, that they are not in the index.
//!
//! A new key is looked for in a random block of the index, and that it is not there was a quarter of the
//! writer's work. A Bloom filter of all keys in the index spares the look: it may hold a key that is
//! not there, and then the file is asked; it never lacks one that is.
//!
//! The filter is not stored. At the start a thread reads all keys into a new one, in slices, so that
//! no transaction stays open for long. Until that is done the file is asked every time.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, TryRecvError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use surehook_core::key::KeyDigest;

use super::{blocks, pack, schema};

/// Twelve bits a key: one look in a hundred is in vain.
const BITS_PER_KEY: usize = 12;
const BITS_SET: u32 = 6;
/// A block is a line of the processor's cache, so that each key costs one access to memory.
const BLOCK_WORDS: usize = 8;
/// The smallest filter has room for this many keys: 1.5 MiB.
const ROOM_MIN: usize = 1 << 20;
const BLOCKS_PER_SLICE: usize = 100;
/// The wait after a scan that failed.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// A set of hashes.
struct Bloom {
    blocks: Vec<[u64; BLOCK_WORDS]>,
    count: usize,
    room: usize,
}

impl Bloom {
    fn with_room(room: usize) -> Self {
        let blocks = room * BITS_PER_KEY / (64 * BLOCK_WORDS) + 1;
        Self { blocks: vec![[0; BLOCK_WORDS]; blocks], count: 0, room }
    }

    /// The block of a hash by its upper half, and the bits in it by its lower one.
    fn place(&self, hash: u64) -> (usize, impl Iterator<Item = (usize, u64)> + use<>) {
        let block = ((hash >> 32) * self.blocks.len() as u64) >> 32;
        let bits = (0..BITS_SET).scan(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15), |state, _| {
            let bit = *state >> 55;
            *state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
            Some(((bit / 64) as usize, 1 << (bit % 64)))
        });
        (block as usize, bits)
    }

    fn insert(&mut self, hash: u64) {
        let (block, bits) = self.place(hash);
        for (word, bit) in bits {
            self.blocks[block][word] |= bit;
        }
        self.count += 1;
    }

    fn may_hold(&self, hash: u64) -> bool {
        let (block, mut bits) = self.place(hash);
        bits.all(|(word, bit)| self.blocks[block][word] & bit != 0)
    }
}

/// A thread that reads the index.
struct Scan {
    found: Receiver<Bloom>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// What was folded since it began, and may not be in what it finds.
    since: Vec<u64>,
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Without it the file is asked; nothing is lost.
            let _panicked = thread.join();
        }
    }
}

/// What is known about the index. Only the writer has it.
pub(super) struct KeyFilter {
    file: PathBuf,
    bloom: Option<Bloom>,
    scan: Option<Scan>,
    /// After a scan that failed.
    retry_at: Option<Instant>,
}

impl KeyFilter {
    /// Begins to read the index of `file`.
    pub(super) fn begin(file: &Path) -> Self {
        let mut filter = Self { file: file.to_owned(), bloom: None, scan: None, retry_at: None };
        filter.scan = filter.start_scan();
        filter
    }

    fn start_scan(&self) -> Option<Scan> {
        let (report, found) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("surehook-filter".to_owned()).spawn({
            let (file, stop) = (self.file.clone(), Arc::clone(&stop));
            move || match schema::open_reader(&file).and_then(|file| read(&file, &stop)) {
                // Nobody waits for it if the store was closed meanwhile.
                Ok(bloom) => drop(report.send(bloom)),
                Err(error) => tracing::warn!(%error, "could not read all keys; going on without"),
            }
        });
        let thread = thread.inspect_err(|error| tracing::warn!(%error, "no thread for the keys"));
        Some(Scan { found, stop, thread: Some(thread.ok()?), since: Vec::new() })
    }

    /// Whether the index certainly does not hold a key.
    pub(super) fn excludes(&self, key: KeyDigest) -> bool {
        self.bloom.as_ref().is_some_and(|bloom| !bloom.may_hold(key.half()))
    }

    /// A key is put into the index. If that is undone, the filter holds one too many, no more.
    pub(super) fn add(&mut self, key: KeyDigest) {
        let hash = key.half();
        if let Some(bloom) = &mut self.bloom {
            bloom.insert(hash);
        }
        if let Some(scan) = &mut self.scan {
            scan.since.push(hash);
        }
    }

    /// Takes over what a scan has found; begins another when the filter is full.
    pub(super) fn tend(&mut self) {
        if let Some(scan) = &mut self.scan {
            match scan.found.try_recv() {
                Ok(mut bloom) => {
                    scan.since.drain(..).for_each(|hash| bloom.insert(hash));
                    self.bloom = Some(bloom);
                    self.scan = None;
                }
                Err(TryRecvError::Disconnected) => {
                    self.scan = None;
                    self.retry_at = Some(Instant::now() + RETRY_AFTER);
                }
                Err(TryRecvError::Empty) => {}
            }
        } else if self.bloom.as_ref().is_none_or(|bloom| bloom.count > bloom.room)
            && self.retry_at.is_none_or(|at| Instant::now() >= at)
        {
            self.retry_at = None;
            self.scan = self.start_scan();
        }
    }
}

/// Reads all keys into a filter with room for as many again.
fn read(connection: &Connection, stop: &AtomicBool) -> rusqlite::Result<Bloom> {
    let mut hashes = Vec::new();
    let mut next = Some(i64::MIN);
    while let Some(from) = next.filter(|_| !stop.load(Ordering::Relaxed)) {
        let slice;
        (slice, next) = blocks::slice(connection, from, BLOCKS_PER_SLICE)?;
        for (_, block) in slice {
            hashes.extend(pack::keys(&block).map(|(key, _)| key.half()));
        }
    }
    let mut bloom = Bloom::with_room((2 * hashes.len()).max(ROOM_MIN));
    hashes.into_iter().for_each(|hash| bloom.insert(hash));
    Ok(bloom)
}

#[cfg(test)]
mod tests {
    use surehook_core::{ids::SourceId, key::DedupKey, time::Timestamp};

    use super::*;

    fn digest(source: u128, key: usize) -> KeyDigest {
        let source = SourceId::new(Timestamp::from_millis(0), source << 64);
        KeyDigest::of(source, &DedupKey::new(&key.to_string()).unwrap())
    }

    /// Waits for the scan that runs.
    fn settle(filter: &mut KeyFilter) {
        if let Some(thread) = filter.scan.as_mut().and_then(|scan| scan.thread.take()) {
            thread.join().unwrap();
        }
        filter.tend();
        assert!(filter.scan.is_none() && filter.bloom.is_some());
    }

    fn index(folder: &Path, keys: std::ops::Range<usize>) -> PathBuf {
        let file = folder.join("surehook.db");
        let connection = schema::open_writer(&file).unwrap();
        let tx = connection.unchecked_transaction().unwrap();
        let mut sorted: Vec<KeyDigest> = keys.map(|key| digest(1, key)).collect();
        sorted.sort_unstable();
        blocks::tests::fold(&tx, &sorted);
        tx.commit().unwrap();
        file
    }

    #[test]
    fn what_is_in_the_index_is_never_excluded_and_most_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let mut filter = KeyFilter::begin(&index(folder.path(), 0..12_000));
        assert!(!filter.excludes(digest(2, 0)), "nothing is known before the index was read");

        settle(&mut filter);

        assert!((0..12_000).all(|key| !filter.excludes(digest(1, key))));
        let excluded = (0..12_000).filter(|key| filter.excludes(digest(2, *key))).count();
        assert!(excluded > 11_000, "{excluded} of 12,000 are excluded");
    }

    #[test]
    fn what_is_added_while_the_index_is_read_is_not_excluded_later() {
        let folder = tempfile::tempdir().unwrap();
        let mut filter = KeyFilter::begin(&index(folder.path(), 0..10));
        filter.add(digest(2, 0));

        settle(&mut filter);
        filter.add(digest(2, 1));

        assert!(!filter.excludes(digest(2, 0)) && !filter.excludes(digest(2, 1)));
    }

    #[test]
    fn a_filter_that_is_full_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut filter = KeyFilter::begin(&index(folder.path(), 0..10));
        settle(&mut filter);
        filter.bloom.as_mut().unwrap().room = 10;
        filter.add(digest(2, 0));

        filter.tend();
        settle(&mut filter);

        assert_eq!(filter.bloom.as_ref().unwrap().room, ROOM_MIN);
        assert!(!filter.excludes(digest(1, 7)));
    }

    #[test]
    fn a_full_filter_seldom_errs() {
        let mut bloom = Bloom::with_room(100_000);
        (0..100_000).for_each(|key| bloom.insert(digest(1, key).half()));

        assert!((0..100_000).all(|key| bloom.may_hold(digest(1, key).half())));
        let wrong = (100_000..200_000).filter(|key| bloom.may_hold(digest(1, *key).half()));
        let wrong = wrong.count();
        assert!(wrong < 3_000, "{wrong} of 100,000 are held though they were never put in");
    }
}
