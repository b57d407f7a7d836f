//! The services that take messages, as far as a gateway can tell: real servers on free ports with the
//! services' own paths, checks, answers and errors.
//!
//! Each service is a [`FakeChannel`], which remembers every message in the order in which it came and does
//! with it what it was told: by recipient, for the next ones, or for a part of all recipients.
//! Without a word from a test, every message that the service itself would take is sent.

pub(crate) mod behavior;
pub(crate) mod cloud_api;
pub(crate) mod cloud_status;
pub(crate) mod evolution_api;
pub(crate) mod evolution_errors;
pub(crate) mod evolution_go;
pub(crate) mod fake_channel;
pub(crate) mod form;
pub(crate) mod meta_errors;

pub(crate) use self::{
    behavior::ChannelBehavior,
    cloud_api::CloudApi,
    cloud_status::CloudApiStatus,
    evolution_api::EvolutionApi,
    evolution_go::EvolutionGo,
    fake_channel::{FakeChannel, RecordedMessage},
};
