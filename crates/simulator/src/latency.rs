//! How long a destination takes to answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use surehook_types::{rng::Rng, time::HumanDuration};

/// A distribution of response times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LatencySpec {
    /// Always the same.
    Fixed(HumanDuration),
    /// Log-normal: most answers are near the median, few take very long.
    LogNormal(LogNormalSpec),
    /// Exponential, by its median.
    Exponential(ExponentialSpec),
    /// Anything between two times.
    Uniform(UniformSpec),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogNormalSpec {
    pub p50: HumanDuration,
    pub p99: HumanDuration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExponentialSpec {
    pub p50: HumanDuration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UniformSpec {
    pub min: HumanDuration,
    pub max: HumanDuration,
}

impl Default for LatencySpec {
    fn default() -> Self {
        let millis = |millis| HumanDuration(Duration::from_millis(millis));
        Self::LogNormal(LogNormalSpec { p50: millis(80), p99: millis(800) })
    }
}

/// The 99th percentile of the standard normal distribution.
const NORMAL_P99: f64 = 2.326_347_874_040_841;

impl LatencySpec {
    /// Checks the numbers; the error says which rule is broken.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::LogNormal(spec) if spec.p50.0.is_zero() => Err("p50 must not be 0"),
            Self::LogNormal(spec) if spec.p99 < spec.p50 => Err("p99 must not be below p50"),
            Self::Uniform(spec) if spec.max < spec.min => Err("max must not be below min"),
            Self::Fixed(_) | Self::LogNormal(_) | Self::Exponential(_) | Self::Uniform(_) => Ok(()),
        }
    }

    /// Draws one response time.
    pub fn draw(&self, rng: &dyn Rng) -> Duration {
        let roll = rng.next_f64();
        let secs = match self {
            Self::Fixed(fixed) => return fixed.0,
            Self::LogNormal(LogNormalSpec { p50, p99 }) => {
                let median = p50.0.as_secs_f64();
                let sigma = (p99.0.as_secs_f64() / median).ln() / NORMAL_P99;
                median * (sigma * normal_quantile(roll)).exp()
            }
            Self::Exponential(ExponentialSpec { p50 }) => {
                -(1.0 - roll).ln() * p50.0.as_secs_f64() / std::f64::consts::LN_2
            }
            Self::Uniform(UniformSpec { min, max }) => {
                let (min, max) = (min.0.as_secs_f64(), max.0.as_secs_f64());
                min + (max - min) * roll
            }
        };
        Duration::from_secs_f64(secs.min(1e9))
    }
}

/// The quantile of the standard normal distribution, by Winitzki's approximation of the inverse error
/// function. It is off by a few thousandths, far less than any guess about a destination.
fn normal_quantile(share: f64) -> f64 {
    const A: f64 = 0.147;
    let x = (2.0 * share - 1.0).clamp(-1.0 + 1e-12, 1.0 - 1e-12);
    let log = (1.0 - x * x).ln();
    let half = 2.0 / (std::f64::consts::PI * A) + log / 2.0;
    let inverse_erf = ((half * half - log / A).sqrt() - half).sqrt().copysign(x);
    std::f64::consts::SQRT_2 * inverse_erf
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SeededRng;

    #[test]
    fn drawn_latencies_have_the_given_percentiles() {
        let cases = [
            (r#"{"p50":"80ms","p99":"800ms"}"#, 80.0, 800.0),
            // Exponential: the 99th percentile is the median times log2(100).
            (r#"{"p50":"100ms"}"#, 100.0, 664.4),
            (r#"{"min":"10ms","max":"110ms"}"#, 60.0, 109.0),
            (r#""250ms""#, 250.0, 250.0),
        ];
        for (text, p50, p99) in cases {
            let spec: LatencySpec = serde_json::from_str(text).unwrap();
            spec.check().unwrap();
            let rng = SeededRng::new(5);
            let mut drawn: Vec<f64> =
                (0..100_000).map(|_| spec.draw(&rng).as_secs_f64() * 1000.0).collect();
            drawn.sort_by(f64::total_cmp);
            for (index, expected) in [(50_000, p50), (99_000, p99)] {
                let found = drawn[index];
                assert!((found / expected - 1.0).abs() < 0.03, "{text}: {found} for {expected}");
            }
        }
    }
}
