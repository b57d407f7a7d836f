//! CPU and memory of processes, read from `/proc` on Linux. On other systems the report omits them.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The kernel reports CPU time in ticks of `USER_HZ`, which is 100 on every architecture Rust runs
/// on; reading it with `sysconf` would need `unsafe` or a dependency.
const TICKS_PER_SECOND: u64 = 100;

/// Resident memory now.
pub(crate) fn rss_bytes(pid: u32) -> Option<u64> {
    parse_status_bytes(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:")
}

/// Peak resident memory since the start of the process or the last [`reset_peak`].
fn rss_peak_bytes(pid: u32) -> Option<u64> {
    parse_status_bytes(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmHWM:")
}

/// Memory that a process allocated itself, without the pages of its program and files, which the
/// kernel can drop.
fn anonymous_bytes(pid: u32) -> Option<u64> {
    parse_status_bytes(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "RssAnon:")
}

fn reset_peak(pid: u32) {
    // If this is refused, the peak covers the whole life of the process and is still an upper bound.
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

fn cpu_time(pid: u32) -> Option<Duration> {
    parse_cpu_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Measures the resource usage of a process during one phase.
#[derive(Debug)]
pub(crate) struct UsageMeter {
    pid: u32,
    cpu_before: Option<Duration>,
}

/// CPU time and peak memory of a process during one phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceUsage {
    pub(crate) cpu: Option<Duration>,
    pub(crate) rss_peak_bytes: Option<u64>,
}

impl ResourceUsage {
    /// CPU time in microseconds for each of `events`.
    pub(crate) fn cpu_us_per(&self, events: u64) -> Option<f64> {
        Some(self.cpu?.as_secs_f64() * 1e6 / events.max(1) as f64)
    }
}

impl UsageMeter {
    pub(crate) fn start(pid: u32) -> Self {
        reset_peak(pid);
        Self { pid, cpu_before: cpu_time(pid) }
    }

    pub(crate) fn read(&self) -> ResourceUsage {
        ResourceUsage {
            cpu: cpu_time(self.pid)
                .zip(self.cpu_before)
                .map(|(now, before)| now.saturating_sub(before)),
            rss_peak_bytes: rss_peak_bytes(self.pid),
        }
    }
}

const ANONYMOUS_SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Peak of the anonymous memory of a process. The kernel keeps none, so it is sampled.
#[derive(Debug)]
pub(crate) struct AnonymousMemoryMeter {
    peak: Arc<AtomicU64>,
    sampling: tokio::task::JoinHandle<()>,
}

impl AnonymousMemoryMeter {
    pub(crate) fn start(pid: u32) -> Self {
        let peak = Arc::new(AtomicU64::new(0));
        let shared_peak = Arc::clone(&peak);
        let sampling = tokio::spawn(async move {
            while let Some(bytes) = anonymous_bytes(pid) {
                shared_peak.fetch_max(bytes, Ordering::Relaxed);
                tokio::time::sleep(ANONYMOUS_SAMPLE_INTERVAL).await;
            }
        });
        Self { peak, sampling }
    }

    /// The peak since the start; none if it cannot be read on this system.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        Some(self.peak.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

impl Drop for AnonymousMemoryMeter {
    fn drop(&mut self) {
        self.sampling.abort();
    }
}

/// CPU time used by other processes during a run.
///
/// Counts user time of other processes and time stolen by the hypervisor. System time is left out:
/// the kernel does not attribute its network part to a process, so it cannot be split by process.
#[derive(Debug)]
pub(crate) struct OtherProcessesMeter {
    started_at: Instant,
    before: Option<Duration>,
}

impl OtherProcessesMeter {
    pub(crate) fn start() -> Self {
        Self { started_at: Instant::now(), before: other_processes_time() }
    }

    /// Share of all cores used by other processes. All child processes must have ended: only then
    /// does the kernel add their time to their parent.
    pub(crate) fn cpu_share(&self, cores: usize) -> Option<f64> {
        let used = other_processes_time()?.saturating_sub(self.before?);
        Some(used.as_secs_f64() / (self.started_at.elapsed().as_secs_f64() * cores as f64))
    }
}

/// User and stolen time since boot, without this process and its ended children.
fn other_processes_time() -> Option<Duration> {
    let all = machine_user_and_steal_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
    let own = own_user_ticks(&fs::read_to_string("/proc/self/stat").ok()?)?;
    Some(ticks_to_duration(all.saturating_sub(own)))
}

fn machine_user_and_steal_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_ascii_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    // proc(5): user, nice, system, idle, iowait, irq, softirq, steal.
    Some(fields.first()? + fields.get(1)? + fields.get(7)?)
}

fn own_user_ticks(stat: &str) -> Option<u64> {
    let fields = cpu_time_fields(stat)?;
    // proc(5): utime and cutime are fields 14 and 16.
    Some(fields.first()? + fields.get(2)?)
}

fn ticks_to_duration(count: u64) -> Duration {
    Duration::from_millis(count * 1000 / TICKS_PER_SECOND)
}

fn parse_status_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

fn parse_cpu_time(stat: &str) -> Option<Duration> {
    let fields = cpu_time_fields(stat)?;
    // proc(5): utime and stime are fields 14 and 15.
    Some(ticks_to_duration(fields.first()? + fields.get(1)?))
}

/// Fields 14 to 17 of `/proc/PID/stat`: utime, stime, cutime and cstime.
fn cpu_time_fields(stat: &str) -> Option<Vec<u64>> {
    // The second field is the program's name in parentheses and may itself contain parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_ascii_whitespace().skip(11).take(4);
    Some(times.map_while(|field| field.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_after_a_name_with_parentheses() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 25 7 3 20 0 5 0 99";
        assert_eq!(parse_cpu_time(stat), Some(Duration::from_millis(1750)));
        assert_eq!(own_user_ticks(stat), Some(157));
        assert_eq!(parse_cpu_time("42 (a) S 1"), None);
    }

    #[test]
    fn machine_time_counts_user_nice_and_steal() {
        let stat = "cpu  100 20 3 4000 5 6 7 80 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(machine_user_and_steal_ticks(stat), Some(200));
        assert_eq!(machine_user_and_steal_ticks("cpu  100 20"), None);
    }

    #[test]
    fn memory_is_read_by_field_name() {
        let status = "Name:\tx\nRssAnon:\t    512 kB\nVmHWM:\t   2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(parse_status_bytes(status, "VmHWM:"), Some(2048 * 1024));
        assert_eq!(parse_status_bytes(status, "VmRSS:"), Some(1024 * 1024));
        assert_eq!(parse_status_bytes(status, "RssAnon:"), Some(512 * 1024));
        assert_eq!(parse_status_bytes(status, "VmSwap:"), None);
    }
}
