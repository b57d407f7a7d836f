//! Which addresses may be called, and a connector that enforces it at the socket.
//!
//! [`address`] and [`proxy`] are pure. The feature `connect` adds the connector and its stopwatch.

pub mod address;
#[cfg(feature = "connect")]
pub mod connect;
pub mod proxy;
#[cfg(feature = "connect")]
pub mod stopwatch;
pub mod timing;
