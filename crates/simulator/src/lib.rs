//! Simulates deliveries on a virtual clock: which retry policy would do what to which destination?
//!
//! The lanes are the gateway's own: [`surehook_core::lane`] decides what starts and what follows from
//! an attempt, `surehook-retry` classifies and schedules. This crate adds what is outside of the
//! gateway: when events arrive ([`arrivals`]), how a destination behaves ([`behavior`]), and a clock
//! that jumps from one event to the next ([`simulation`]). Instead of a modelled destination there may be
//! a recorded one ([`history`]): what would another policy have done ([`what_if`])?
//!
//! Everything is pure and follows from the seed: two runs of one scenario are equal.

pub mod arrivals;
pub mod behavior;
pub mod history;
pub mod latency;
pub mod plot;
pub mod policy;
mod recorder;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod simulation;
#[cfg(test)]
mod tests;
pub mod what_if;

pub use behavior::{DestinationBehavior, SimulatedRequest, SimulatedResponse};
pub use policy::PolicySpec;
pub use report::SimulationReport;
pub use scenario::{Scenario, ScenarioError};
pub use simulation::{Simulation, SimulationLane};
pub use what_if::{WhatIfReport, predict};
