//! Why nobody could send a message.

use super::CONTACTS_MAX;

/// Why a message cannot be sent by anybody.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageSpecError {
    /// It is not written like a message.
    #[error("this is not a message: {0}")]
    Unreadable(String),
    /// `to` is nobody.
    #[error(
        "`to` is no recipient; write a phone number with its country (+55 11 98765-4321), a group \
         (…@g.us) or a BSUID (BR.…)"
    )]
    To,
    /// Nothing is there to be sent.
    #[error(
        "there is nothing to send; add `text`, `image`, `video`, `audio`, `document`, `sticker`, `location`, `contact`, `reaction` or `template`"
    )]
    Nothing,
    /// More than one thing is there to be sent.
    #[error("there are both `{0}` and `{1}`; a message holds one of them, so send two messages")]
    TwoThings(&'static str, &'static str),
    /// `type` says something else.
    #[error(
        "`type` is `{wanted}`, but the message holds `{found}`; write the field `{wanted}`, or leave `type` out"
    )]
    OtherType {
        /// What `type` says.
        wanted: &'static str,
        /// What is there.
        found: &'static str,
    },
    /// A field that must hold something holds nothing.
    #[error("`{0}` is empty; write something, or leave it out if it is not needed")]
    Empty(&'static str),
    /// A field is too long.
    #[error("`{field}` has more than {max} characters; shorten it, or send more than one message")]
    TooLong {
        /// The field.
        field: &'static str,
        /// The most it may have.
        max: usize,
    },
    /// Neither `url` nor `media_id` nor `file`.
    #[error("`{0}` has neither `url` nor `media_id` nor `file`; write one of them")]
    NoFile(&'static str),
    /// More than one of `url`, `media_id` and `file`.
    #[error("`{0}` has more than one of `url`, `media_id` and `file`; write one of them")]
    TwoFiles(&'static str),
    /// The address of the file is none.
    #[error("`{0}.url` is no address; write http://… or https://…")]
    Url(&'static str),
    /// It would be lost.
    #[error("`{0}` cannot have a caption; send the text as a message of its own")]
    Caption(&'static str),
    /// It is no sound.
    #[error("`{0}.voice` has no meaning; only audio can be a voice message")]
    Voice(&'static str),
    /// The place is not on earth.
    #[error("`location` is nowhere; latitude goes from -90 to 90, longitude from -180 to 180")]
    Nowhere,
    /// A person cannot be called.
    #[error("`contact.phone` is no phone number with its country, such as +55 11 98765-4321")]
    ContactPhone,
    /// Too many people.
    #[error("`contact` lists more than {CONTACTS_MAX} people; send more than one message")]
    TooManyContacts,
    /// A reaction belongs to its own message.
    #[error("a reaction cannot answer a message; leave `reply_to` out")]
    ReactionReply,
}
