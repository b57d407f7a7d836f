//! Values of parameters and columns. There are four kinds: ids and bodies are blobs, times and counts
//! are integers, and flags are the integers 0 and 1.

use std::sync::Arc;

use bytes::Bytes;

use super::{Result, SqlError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqlValue<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Blob(&'a [u8]),
}

impl SqlValue<'_> {
    /// For messages, which must not contain the value.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Integer(_) => "an integer",
            Self::Text(_) => "a text",
            Self::Blob(_) => "a blob",
        }
    }
}

/// A type that can be passed to a statement.
pub(crate) trait SqlParameter {
    /// Fails if the value is out of range.
    fn to_value(&self) -> Result<SqlValue<'_>>;
}

/// The parameters of a statement, in order.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$(&$value as &dyn $crate::sql::SqlParameter),*] as &[&dyn $crate::sql::SqlParameter]
    };
}
pub(crate) use params;

impl<T: SqlParameter + ?Sized> SqlParameter for &T {
    fn to_value(&self) -> Result<SqlValue<'_>> {
        (**self).to_value()
    }
}

impl<T: SqlParameter> SqlParameter for Option<T> {
    fn to_value(&self) -> Result<SqlValue<'_>> {
        self.as_ref().map_or(Ok(SqlValue::Null), T::to_value)
    }
}

impl SqlParameter for bool {
    fn to_value(&self) -> Result<SqlValue<'_>> {
        Ok(SqlValue::Integer((*self).into()))
    }
}

impl SqlParameter for str {
    fn to_value(&self) -> Result<SqlValue<'_>> {
        Ok(SqlValue::Text(self))
    }
}

impl SqlParameter for String {
    fn to_value(&self) -> Result<SqlValue<'_>> {
        Ok(SqlValue::Text(self))
    }
}

impl SqlParameter for [u8] {
    fn to_value(&self) -> Result<SqlValue<'_>> {
        Ok(SqlValue::Blob(self))
    }
}

impl<const N: usize> SqlParameter for [u8; N] {
    fn to_value(&self) -> Result<SqlValue<'_>> {
        Ok(SqlValue::Blob(self))
    }
}

impl SqlParameter for Vec<u8> {
    fn to_value(&self) -> Result<SqlValue<'_>> {
        Ok(SqlValue::Blob(self))
    }
}

/// A type that can be read from a column.
pub(crate) trait FromSqlValue: Sized {
    /// `None` if the value is of another kind or out of range.
    fn from_value(value: SqlValue<'_>) -> Option<Self>;
}

impl<T: FromSqlValue> FromSqlValue for Option<T> {
    fn from_value(value: SqlValue<'_>) -> Option<Self> {
        if value == SqlValue::Null { Some(None) } else { T::from_value(value).map(Some) }
    }
}

impl FromSqlValue for bool {
    fn from_value(value: SqlValue<'_>) -> Option<Self> {
        i64::from_value(value).map(|flag| flag != 0)
    }
}

impl FromSqlValue for String {
    fn from_value(value: SqlValue<'_>) -> Option<Self> {
        let SqlValue::Text(text) = value else { return None };
        Some(text.to_owned())
    }
}

impl FromSqlValue for Arc<str> {
    fn from_value(value: SqlValue<'_>) -> Option<Self> {
        let SqlValue::Text(text) = value else { return None };
        Some(text.into())
    }
}

impl FromSqlValue for Vec<u8> {
    fn from_value(value: SqlValue<'_>) -> Option<Self> {
        let SqlValue::Blob(bytes) = value else { return None };
        Some(bytes.to_vec())
    }
}

impl FromSqlValue for Bytes {
    fn from_value(value: SqlValue<'_>) -> Option<Self> {
        Vec::from_value(value).map(Self::from)
    }
}

impl<const N: usize> FromSqlValue for [u8; N] {
    fn from_value(value: SqlValue<'_>) -> Option<Self> {
        let SqlValue::Blob(bytes) = value else { return None };
        bytes.try_into().ok()
    }
}

/// Integers of all sizes, checked.
macro_rules! integers {
    ($($integer:ty)*) => {
        $(
            impl SqlParameter for $integer {
                fn to_value(&self) -> Result<SqlValue<'_>> {
                    i64::try_from(*self).map(SqlValue::Integer).map_err(|_| SqlError::OutOfRange)
                }
            }

            impl FromSqlValue for $integer {
                fn from_value(value: SqlValue<'_>) -> Option<Self> {
                    let SqlValue::Integer(integer) = value else { return None };
                    integer.try_into().ok()
                }
            }
        )*
    };
}

integers! { i32 i64 u8 u16 u32 u64 usize }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_out_of_range_are_refused_in_both_directions() {
        assert!(matches!(u64::MAX.to_value(), Err(SqlError::OutOfRange)));
        assert_eq!(u64::from_value(SqlValue::Integer(-1)), None);
        assert_eq!(u32::from_value(SqlValue::Integer(1 << 32)), None);
        assert_eq!(i64::from_value(SqlValue::Text("1")), None);
        assert_eq!(u16::from_value(SqlValue::Integer(65_535)), Some(65_535));
    }

    #[test]
    fn null_is_read_only_as_none() {
        assert_eq!(Option::<String>::from_value(SqlValue::Null), Some(None));
        assert_eq!(String::from_value(SqlValue::Null), None);
        assert_eq!(None::<i64>.to_value().unwrap(), SqlValue::Null);
    }

    #[test]
    fn blob_of_another_length_is_no_id() {
        assert_eq!(<[u8; 16]>::from_value(SqlValue::Blob(&[0; 15])), None);
        assert_eq!(<[u8; 2]>::from_value(SqlValue::Blob(&[1, 2])), Some([1, 2]));
    }
}
